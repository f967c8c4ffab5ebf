// RUN: covan-opt %s -p 'func.func(fred-raise,kir-raise)' --mlir-print-debuginfo | FileCheck %s

#a = affine_map<(d0, d1, d2) -> (d0, d2)>
#b = affine_map<(d0, d1, d2) -> (d1, d2)>
#c = affine_map<(d0, d1, d2) -> (d0, d1)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#column = affine_map<(d0, d1) -> (d1)>
#row = affine_map<(d0, d1) -> (d0)>

// Steps without a sign, whose 121st stands for 0, times a matrix; the sums are scaled and quantised again.

// CHECK: #[[ALL:.+]] = loc(fused<#prov.trace<[0, 1, 2]>>
// CHECK-LABEL: func.func @linear
// CHECK: "kir.linear"
// CHECK: accumulator = "i32"
// CHECK-SAME: first = {at = ["[[I:.]]", "[[K:.]]"], name = "[[X:x.]]", signed = false, zero = 121 : i64}
// CHECK-SAME: results = [{inverse = 1.250000e+01 : f64, largest = 127 : i64, least = -128 : i64, rounding = "half_even", zero = 3 : i64}]
// CHECK-SAME: scales = [3.125000e-02, "[[S:x.]]"]
// CHECK-SAME: second = {at = ["[[J:.]]", "[[K]]"], name = "[[W:x.]]", signed = true, zero = 0 : i64}
// CHECK-SAME: -> tensor<5x16xi8> loc(#[[ALL]])
func.func @linear(%x: tensor<5x8xi8>, %w: tensor<16x8xi8>, %s: tensor<16xf32>) -> tensor<5x16xi8> {
  %c0 = arith.constant 0 : i32
  %c121 = arith.constant 121 : i32
  %scale = arith.constant 3.125000e-02 : f32
  %inverse = arith.constant 12.5 : f32
  %zero = arith.constant 3.0 : f32
  %least = arith.constant -128.0 : f32
  %largest = arith.constant 127.0 : f32
  %e = tensor.empty() : tensor<5x16xi32>
  %f = linalg.fill ins(%c0 : i32) outs(%e : tensor<5x16xi32>) -> tensor<5x16xi32> loc("prov:0:mm")
  %sums = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%x, %w : tensor<5x8xi8>, tensor<16x8xi8>) outs(%f : tensor<5x16xi32>) {
  ^bb0(%p: i8, %q: i8, %total: i32):
    %0 = arith.extui %p : i8 to i32 loc("prov:0:mm")
    %1 = arith.subi %0, %c121 : i32 loc("prov:0:mm")
    %2 = arith.extsi %q : i8 to i32 loc("prov:0:mm")
    %3 = arith.muli %1, %2 : i32 loc("prov:0:mm")
    %4 = arith.addi %total, %3 : i32 loc("prov:0:mm")
    linalg.yield %4 : i32
  } -> tensor<5x16xi32> loc("prov:0:mm")
  %g = tensor.empty() : tensor<5x16xf32>
  %real = linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
    ins(%sums, %s : tensor<5x16xi32>, tensor<16xf32>) outs(%g : tensor<5x16xf32>) {
  ^bb0(%p: i32, %q: f32, %out: f32):
    %0 = arith.sitofp %p : i32 to f32 loc("prov:1:mul")
    %1 = arith.mulf %0, %scale : f32 loc("prov:1:mul")
    %2 = arith.mulf %1, %q : f32 loc("prov:1:mul")
    linalg.yield %2 : f32
  } -> tensor<5x16xf32> loc("prov:1:mul")
  %h = tensor.empty() : tensor<5x16xi8>
  %steps = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%real : tensor<5x16xf32>) outs(%h : tensor<5x16xi8>) {
  ^bb0(%p: f32, %out: i8):
    %0 = arith.mulf %p, %inverse : f32 loc("prov:2:quantize")
    %1 = math.roundeven %0 : f32 loc("prov:2:quantize")
    %2 = arith.addf %1, %zero : f32 loc("prov:2:quantize")
    %3 = arith.cmpf olt, %2, %least : f32 loc("prov:2:quantize")
    %4 = arith.select %3, %least, %2 : f32 loc("prov:2:quantize")
    %5 = arith.cmpf ogt, %4, %largest : f32 loc("prov:2:quantize")
    %6 = arith.select %5, %largest, %4 : f32 loc("prov:2:quantize")
    %7 = arith.fptosi %6 : f32 to i32 loc("prov:2:quantize")
    %8 = arith.trunci %7 : i32 to i8 loc("prov:2:quantize")
    linalg.yield %8 : i8
  } -> tensor<5x16xi8> loc("prov:2:quantize")
  return %steps : tensor<5x16xi8>
}

// Floats are no steps: what is done with them is told all the same.

// CHECK-LABEL: func.func @largest
// CHECK: "kir.reduction"
// CHECK: accumulator = "f32", {{.*}}mode = "max", {{.*}}over = ["j"], {{.*}}results = [{}]
func.func @largest(%x: tensor<5x7xf32>) -> tensor<5xf32> {
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5xf32>
  %f = linalg.fill ins(%least : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<5x7xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%p: f32, %total: f32):
    %0 = arith.maximumf %p, %total : f32
    linalg.yield %0 : f32
  } -> tensor<5xf32>
  return %m : tensor<5xf32>
}
