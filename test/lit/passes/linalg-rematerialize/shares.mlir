// RUN: covan-opt %s -p 'func.func(linalg-rematerialize)' --mlir-print-debuginfo | FileCheck %s

#all = affine_map<(d0) -> (d0)>

// CHECK-DAG: #[[OTHER:.*]] = loc("prov:2:conv_1")
// CHECK-DAG: #[[LATER:.*]] = loc("prov:5:sin")

// A padding that is a share of the first of two convolutions: the second one has its own.
// CHECK-LABEL: func.func @padding(
// CHECK: %[[FIRST:.*]] = tensor.pad %arg0
// CHECK: } : tensor<1x2x4x4xf32> to tensor<1x2x6x6xf32> loc(#[[ONE:.*]])
// CHECK: linalg.conv_2d_nchw_fchw ins(%[[FIRST]], %arg1
// CHECK: %[[SECOND:.*]] = tensor.pad %arg0
// CHECK: tensor.yield {{.*}} loc(#[[OTHER]])
// CHECK: } : tensor<1x2x4x4xf32> to tensor<1x2x6x6xf32> loc(#[[OTHER]])
// CHECK: linalg.conv_2d_nchw_fchw ins(%[[SECOND]], %arg2
func.func @padding(%x: tensor<1x2x4x4xf32>, %v: tensor<3x2x3x3xf32>, %w: tensor<3x2x3x3xf32>, %y: tensor<1x3x4x4xf32>) -> (tensor<1x3x4x4xf32>, tensor<1x3x4x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 0, 1, 1] high[0, 0, 1, 1] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %zero : f32 loc("prov:1:conv")
  } : tensor<1x2x4x4xf32> to tensor<1x2x6x6xf32> loc("prov:1:conv")
  %0 = linalg.conv_2d_nchw_fchw ins(%p, %v : tensor<1x2x6x6xf32>, tensor<3x2x3x3xf32>) outs(%y : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32> loc("prov:1:conv")
  %1 = linalg.conv_2d_nchw_fchw ins(%p, %w : tensor<1x2x6x6xf32>, tensor<3x2x3x3xf32>) outs(%y : tensor<1x3x4x4xf32>) -> tensor<1x3x4x4xf32> loc("prov:2:conv_1")
  return %0, %1 : tensor<1x3x4x4xf32>, tensor<1x3x4x4xf32>
}

// One that is a call of its own stays one.
// CHECK-LABEL: func.func @called(
// CHECK: tensor.pad
// CHECK-NOT: tensor.pad
// CHECK: return
func.func @called(%x: tensor<4xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[1] high[1] {
  ^bb0(%a: index):
    tensor.yield %zero : f32 loc("prov:1:pad")
  } : tensor<4xf32> to tensor<6xf32> loc("prov:1:pad")
  %0 = math.exp %p : tensor<6xf32> loc("prov:2:exp")
  %1 = math.sin %p : tensor<6xf32> loc("prov:3:sin")
  return %0, %1 : tensor<6xf32>, tensor<6xf32>
}

// So does one that is returned as well.
// CHECK-LABEL: func.func @returned(
// CHECK: tensor.pad
// CHECK-NOT: tensor.pad
// CHECK: return
func.func @returned(%x: tensor<4xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[1] high[1] {
  ^bb0(%a: index):
    tensor.yield %zero : f32 loc("prov:1:pad")
  } : tensor<4xf32> to tensor<6xf32> loc("prov:1:pad")
  %0 = math.exp %p : tensor<6xf32> loc("prov:2:exp")
  return %p, %0 : tensor<6xf32>, tensor<6xf32>
}

// So does one that was given another shape, and is nothing else.
// CHECK-LABEL: func.func @reshaped(
// CHECK: linalg.broadcast
// CHECK-NOT: linalg.broadcast
// CHECK: return
func.func @reshaped(%x: tensor<4xf32>, %z: tensor<2x4xf32>) -> (tensor<8xf32>, tensor<2x4xf32>) {
  %rows = linalg.broadcast ins(%x : tensor<4xf32>) outs(%z : tensor<2x4xf32>) dimensions = [0] loc("prov:1:repeat")
  %flat = tensor.collapse_shape %rows [[0, 1]] : tensor<2x4xf32> into tensor<8xf32> loc("prov:1:repeat")
  %0 = math.exp %flat : tensor<8xf32> loc("prov:2:exp")
  %1 = math.sin %rows : tensor<2x4xf32> loc("prov:3:sin")
  return %0, %1 : tensor<8xf32>, tensor<2x4xf32>
}

// What prepares a preparation goes with it: halves in more bits, which are broadcast.
// CHECK-LABEL: func.func @behind(
// CHECK: %[[WIDE:.*]] = linalg.generic
// CHECK: %[[MINE:.*]] = linalg.broadcast ins(%[[WIDE]]
// CHECK: math.exp %[[MINE]]
// CHECK: %[[WIDE_TOO:.*]] = linalg.generic
// CHECK: arith.extf {{.*}} loc(#[[LATER]])
// CHECK: %[[YOURS:.*]] = linalg.broadcast ins(%[[WIDE_TOO]]
// CHECK: math.sin %[[YOURS]] {{.*}} loc(#[[LATER]])
func.func @behind(%h: tensor<4xf16>, %y: tensor<4xf32>, %z: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  %wide = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel"]} ins(%h : tensor<4xf16>) outs(%y : tensor<4xf32>) {
  ^bb0(%a: f16, %b: f32):
    %e = arith.extf %a : f16 to f32 loc("prov:4:exp")
    linalg.yield %e : f32 loc("prov:4:exp")
  } -> tensor<4xf32> loc("prov:4:exp")
  %rows = linalg.broadcast ins(%wide : tensor<4xf32>) outs(%z : tensor<2x4xf32>) dimensions = [0] loc("prov:4:exp")
  %0 = math.exp %rows : tensor<2x4xf32> loc("prov:4:exp")
  %1 = math.sin %rows : tensor<2x4xf32> loc("prov:5:sin")
  return %0, %1 : tensor<2x4xf32>, tensor<2x4xf32>
}

// Who takes elements inside of its body reads a copy that stands beside it, not in it.
// CHECK-LABEL: func.func @taken(
// CHECK: %[[ROWS:.*]] = linalg.transpose
// CHECK: math.exp %[[ROWS]]
// CHECK: %[[TAKEN:.*]] = linalg.transpose
// CHECK: linalg.generic
// CHECK: tensor.extract %[[TAKEN]]
func.func @taken(%x: tensor<2x4xf32>, %y: tensor<4x2xf32>, %z: tensor<4xf32>) -> (tensor<4x2xf32>, tensor<4xf32>) {
  %zero = arith.constant 0 : index
  %t = linalg.transpose ins(%x : tensor<2x4xf32>) outs(%y : tensor<4x2xf32>) permutation = [1, 0] loc("prov:1:exp")
  %0 = math.exp %t : tensor<4x2xf32> loc("prov:1:exp")
  %1 = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel"]} outs(%z : tensor<4xf32>) {
  ^bb0(%b: f32):
    %i = linalg.index 0 : index loc("prov:2:index")
    %e = tensor.extract %t[%i, %zero] : tensor<4x2xf32> loc("prov:2:index")
    linalg.yield %e : f32 loc("prov:2:index")
  } -> tensor<4xf32> loc("prov:2:index")
  return %0, %1 : tensor<4x2xf32>, tensor<4xf32>
}

// CHECK: #[[ONE]] = loc("prov:1:conv")
