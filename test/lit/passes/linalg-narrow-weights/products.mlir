// RUN: covan-opt %s -p 'func.func(linalg-narrow-weights)' --mlir-print-debuginfo | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0, 0)>
#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#group = affine_map<(d0, d1, d2) -> (d0, d1, 0)>

// A scale for each column: floats are multiplied by steps, and the sums by what these stand for. All of it has the
// traces of all.

// CHECK: #[[ALL:.+]] = loc(fused<#prov.trace<[0, 1]>>
// CHECK-LABEL: func.func @columns
// CHECK: %[[W:.+]] = arith.constant dense_resource<w> : tensor<16x8xi8>
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[W]] : tensor<16x8xi8>) {{.*}} permutation = [1, 0] loc(#[[ALL]])
// CHECK: %[[S:.+]] = linalg.generic {{.*}} "reduction"]} ins(%arg0, %[[T]] : tensor<?x8xf32>, tensor<8x16xi8>)
// CHECK: %[[E:.+]] = arith.extsi
// CHECK: %[[F:.+]] = arith.sitofp %[[E]]
// CHECK: %[[P:.+]] = arith.mulf %{{.+}}, %[[F]]
// CHECK: arith.addf %{{.+}}, %[[P]]
// CHECK: linalg.generic {{.*}} ins(%[[S]], %arg1 : tensor<?x16xf32>, tensor<16x1xf32>)
// CHECK-NOT: linalg.matmul
func.func @columns(%x: tensor<?x8xf32>, %scales: tensor<16x1xf32>, %into: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %w = arith.constant dense_resource<w> : tensor<16x8xi8>
  %none = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%w : tensor<16x8xi8>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.sitofp %in : i8 to f32 loc("prov:0:dequantize")
    linalg.yield %a : f32
  } -> tensor<16x8xf32> loc("prov:0:dequantize")
  %1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%0, %scales : tensor<16x8xf32>, tensor<16x1xf32>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %a = arith.mulf %in, %s : f32 loc("prov:0:dequantize")
    linalg.yield %a : f32
  } -> tensor<16x8xf32> loc("prov:0:dequantize")
  %f = tensor.empty() : tensor<8x16xf32>
  %2 = linalg.transpose ins(%1 : tensor<16x8xf32>) outs(%f : tensor<8x16xf32>) permutation = [1, 0] loc("prov:1:mm")
  %3 = linalg.fill ins(%none : f32) outs(%into : tensor<?x16xf32>) -> tensor<?x16xf32> loc("prov:1:mm")
  %4 = linalg.matmul ins(%x, %2 : tensor<?x8xf32>, tensor<8x16xf32>) outs(%3 : tensor<?x16xf32>) -> tensor<?x16xf32> loc("prov:1:mm")
  return %4 : tensor<?x16xf32>
}

// A scale for each four terms of a column, and steps that are taken for the nearest ones of 4 bits: terms have a loop of
// groups.

// CHECK-LABEL: func.func @groups
// CHECK: %[[W:.+]] = arith.constant dense_resource<w> : tensor<16x8xi8>
// CHECK-DAG: %[[X:.+]] = tensor.expand_shape %arg0 {{\[\[}}0], [1, 2]] {{.*}} into tensor<5x2x4xf32>
// CHECK-DAG: %[[G:.+]] = tensor.expand_shape %{{.+}} {{\[\[}}0, 1], [2]] {{.*}} into tensor<2x4x16xi8>
// CHECK: linalg.generic {{.*}} "reduction", "reduction"]} ins(%[[X]], %[[G]], %arg1 : tensor<5x2x4xf32>, tensor<2x4x16xi8>, tensor<16x2x1xf32>)
// CHECK: %[[L:.+]] = arith.maxsi %{{.+}}, %c-8_i32
// CHECK: %[[H:.+]] = arith.minsi %[[L]], %c7_i32
// CHECK: %[[F:.+]] = arith.sitofp %[[H]]
// CHECK: %[[M:.+]] = arith.mulf %[[F]], %{{.+}} : f32
// CHECK: %[[P:.+]] = arith.mulf %{{.+}}, %[[M]] : f32
// CHECK: arith.addf %{{.+}}, %[[P]]
// CHECK-NOT: linalg.matmul
func.func @groups(%x: tensor<5x8xf32>, %scales: tensor<16x2x1xf32>) -> tensor<5x16xf32> {
  %w = arith.constant dense_resource<w> : tensor<16x8xi8>
  %none = arith.constant 0.0 : f32
  %least = arith.constant -8 : i32
  %most = arith.constant 7 : i32
  %e = tensor.empty() : tensor<16x8xi32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%w : tensor<16x8xi8>) outs(%e : tensor<16x8xi32>) {
  ^bb0(%in: i8, %out: i32):
    %a = arith.extsi %in : i8 to i32
    linalg.yield %a : i32
  } -> tensor<16x8xi32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%0 : tensor<16x8xi32>) outs(%e : tensor<16x8xi32>) {
  ^bb0(%in: i32, %out: i32):
    %a = arith.maxsi %in, %least : i32
    %b = arith.minsi %a, %most : i32
    linalg.yield %b : i32
  } -> tensor<16x8xi32>
  %i = tensor.empty() : tensor<16x8xi8>
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%1 : tensor<16x8xi32>) outs(%i : tensor<16x8xi8>) {
  ^bb0(%in: i32, %out: i8):
    %a = arith.trunci %in : i32 to i8
    linalg.yield %a : i8
  } -> tensor<16x8xi8>
  %3 = tensor.expand_shape %2 [[0], [1, 2]] output_shape [16, 2, 4] : tensor<16x8xi8> into tensor<16x2x4xi8>
  %g = tensor.empty() : tensor<16x2x4xf32>
  %4 = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%3 : tensor<16x2x4xi8>) outs(%g : tensor<16x2x4xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.sitofp %in : i8 to f32
    linalg.yield %a : f32
  } -> tensor<16x2x4xf32>
  %5 = linalg.generic {indexing_maps = [#id3, #group, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%4, %scales : tensor<16x2x4xf32>, tensor<16x2x1xf32>) outs(%g : tensor<16x2x4xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %a = arith.mulf %in, %s : f32
    linalg.yield %a : f32
  } -> tensor<16x2x4xf32>
  %6 = tensor.collapse_shape %5 [[0], [1, 2]] : tensor<16x2x4xf32> into tensor<16x8xf32>
  %f = tensor.empty() : tensor<8x16xf32>
  %7 = linalg.transpose ins(%6 : tensor<16x8xf32>) outs(%f : tensor<8x16xf32>) permutation = [1, 0]
  %h = tensor.empty() : tensor<5x16xf32>
  %8 = linalg.fill ins(%none : f32) outs(%h : tensor<5x16xf32>) -> tensor<5x16xf32>
  %9 = linalg.matmul ins(%x, %7 : tensor<5x8xf32>, tensor<8x16xf32>) outs(%8 : tensor<5x16xf32>) -> tensor<5x16xf32>
  return %9 : tensor<5x16xf32>
}

// Steps that are no weight's are made floats first, as the program has it.

// CHECK-LABEL: func.func @no_weight
// CHECK: linalg.matmul
func.func @no_weight(%x: tensor<5x8xf32>, %y: tensor<8x16xi8>) -> tensor<5x16xf32> {
  %none = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x16xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%y : tensor<8x16xi8>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.sitofp %in : i8 to f32
    linalg.yield %a : f32
  } -> tensor<8x16xf32>
  %h = tensor.empty() : tensor<5x16xf32>
  %1 = linalg.fill ins(%none : f32) outs(%h : tensor<5x16xf32>) -> tensor<5x16xf32>
  %2 = linalg.matmul ins(%x, %0 : tensor<5x8xf32>, tensor<8x16xf32>) outs(%1 : tensor<5x16xf32>) -> tensor<5x16xf32>
  return %2 : tensor<5x16xf32>
}

// A weight without a sign, with zero points of groups: these are taken off its steps as floats.

// CHECK-LABEL: func.func @zeros
// CHECK: linalg.generic {{.*}} "reduction", "reduction"]} ins(%{{.+}}, %{{.+}}, %arg1, %{{.+}} : tensor<5x2x4xf32>, tensor<2x4x16xi8>, tensor<16x2x1xf32>, tensor<16x2x1xf32>)
// CHECK: %[[E:.+]] = arith.extui %{{.+}} : i8 to i32
// CHECK: %[[F:.+]] = arith.sitofp %[[E]]
// CHECK: %[[L:.+]] = arith.subf %[[F]], %{{.+}} : f32
// CHECK: %[[M:.+]] = arith.mulf %[[L]], %{{.+}} : f32
// CHECK: arith.mulf %{{.+}}, %[[M]] : f32
// CHECK-NOT: linalg.matmul
func.func @zeros(%x: tensor<5x8xf32>, %scales: tensor<16x2x1xf32>) -> tensor<5x16xf32> {
  %w = arith.constant dense_resource<w> : tensor<16x2x4xi8>
  %z = arith.constant dense<7.0> : tensor<16x2x1xf32>
  %z2 = tensor.empty() : tensor<16x2x1xf32>
  %zeros = linalg.generic {indexing_maps = [#id3, #id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%z, %scales : tensor<16x2x1xf32>, tensor<16x2x1xf32>) outs(%z2 : tensor<16x2x1xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<16x2x1xf32>
  %none = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x2x4xf32>
  %0 = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%w : tensor<16x2x4xi8>) outs(%e : tensor<16x2x4xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.uitofp %in : i8 to f32
    linalg.yield %a : f32
  } -> tensor<16x2x4xf32>
  %1 = linalg.generic {indexing_maps = [#id3, #group, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%0, %zeros : tensor<16x2x4xf32>, tensor<16x2x1xf32>) outs(%e : tensor<16x2x4xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %a = arith.subf %in, %s : f32
    linalg.yield %a : f32
  } -> tensor<16x2x4xf32>
  %2 = linalg.generic {indexing_maps = [#id3, #group, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%1, %scales : tensor<16x2x4xf32>, tensor<16x2x1xf32>) outs(%e : tensor<16x2x4xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %a = arith.mulf %in, %s : f32
    linalg.yield %a : f32
  } -> tensor<16x2x4xf32>
  %3 = tensor.collapse_shape %2 [[0], [1, 2]] : tensor<16x2x4xf32> into tensor<16x8xf32>
  %f = tensor.empty() : tensor<8x16xf32>
  %4 = linalg.transpose ins(%3 : tensor<16x8xf32>) outs(%f : tensor<8x16xf32>) permutation = [1, 0]
  %g = tensor.empty() : tensor<5x16xf32>
  %5 = linalg.fill ins(%none : f32) outs(%g : tensor<5x16xf32>) -> tensor<5x16xf32>
  %6 = linalg.matmul ins(%x, %4 : tensor<5x8xf32>, tensor<8x16xf32>) outs(%5 : tensor<5x16xf32>) -> tensor<5x16xf32>
  return %6 : tensor<5x16xf32>
}
