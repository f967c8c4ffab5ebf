// RUN: %segments %s | covan-opt -p 'func.func(fred-lower)' | FileCheck %s

// What is read through a window is padded as far as positions lie outside of it, by what is outside.

// CHECK: #[[X:.*]] = affine_map<(d0, d1, d2) -> (d0, d1 * 2 + d2)>
// CHECK-LABEL: func.func @f(
// CHECK: %[[P:.*]] = tensor.pad %{{.*}} low[0, 1] high[0, 1] {
// CHECK: } : tensor<4x9xf32> to tensor<4x11xf32>
// CHECK: linalg.generic {indexing_maps = [#[[X]], {{.*}}], iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[P]], %{{.*}} : tensor<4x11xf32>, tensor<4x3xf32>)
func.func @f(%x: tensor<4x9xf32>, %w: tensor<4x3xf32>) -> tensor<4x5xf32> {
  %y = "fred.chain"(%x, %w) ({
  ^bb0(%x_: tensor<4x9xf32>, %w_: tensor<4x3xf32>):
    %v = "fred.reduce"() ({
      %a = "fred.window"(%x_) {along = ["c", "h", "r"], at = affine_map<(c, h, r) -> (c, 2 * h + r - 1)>, outside = 0.0 : f32} : (tensor<4x9xf32>) -> f32
      %b = "fred.read"(%w_) : (tensor<4x3xf32>) -> f32
      %p = arith.mulf %a, %b : f32
      "fred.yield"(%p) : (f32) -> ()
    }) {value = "v", axes = ["c", "h"], over = ["r"], combine = "add", initial = 0.0 : f32} : () -> tensor<4x5xf32>
    "fred.output"(%v) : (tensor<4x5xf32>) -> ()
  }) {axes = ["c", "h", "r", "p"], sizes = [4, 5, 3, 9], names = ["x", "w"], inputs = [["c", "p"], ["c", "r"]]} : (tensor<4x9xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  return %y : tensor<4x5xf32>
}

// A maximum over windows: linalg takes the window's size from a tensor that nobody reads. No position lies outside.

// CHECK-LABEL: func.func @largest(
// CHECK-NOT: tensor.pad
// CHECK: %[[W:.*]] = tensor.empty() : tensor<2xi1>
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[W]] : tensor<9xf32>, tensor<2xi1>)
// CHECK: arith.maximumf
func.func @largest(%x: tensor<9xf32>) -> tensor<4xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%x_: tensor<9xf32>):
    %v = "fred.reduce"() ({
      %a = "fred.window"(%x_) {along = ["h", "r"], at = affine_map<(h, r) -> (2 * h + r)>, outside = 0xFF800000 : f32} : (tensor<9xf32>) -> f32
      "fred.yield"(%a) : (f32) -> ()
    }) {value = "v", axes = ["h"], over = ["r"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<4xf32>
    "fred.output"(%v) : (tensor<4xf32>) -> ()
  }) {axes = ["h", "r", "p"], sizes = [4, 2, 9], names = ["x"], inputs = [["p"]]} : (tensor<9xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// One position after the other, from the third on: the input is cut to what is read.

// CHECK-LABEL: func.func @shifted(
// CHECK: %[[P:.*]] = tensor.pad %{{.*}} low[0] high[1] {
// CHECK: %[[S:.*]] = tensor.extract_slice %[[P]][2] [8] [1] : tensor<10xf32> to tensor<8xf32>
// CHECK: linalg.generic {{.*}} ins(%[[S]] : tensor<8xf32>)
func.func @shifted(%x: tensor<9xf32>) -> tensor<8xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%x_: tensor<9xf32>):
    %v = "fred.map"() ({
      %a = "fred.window"(%x_) {along = ["h"], at = affine_map<(h) -> (h + 2)>, outside = 1.0 : f32} : (tensor<9xf32>) -> f32
      %b = math.exp %a : f32
      "fred.yield"(%b) : (f32) -> ()
    }) {value = "v", axes = ["h"]} : () -> tensor<8xf32>
    "fred.output"(%v) : (tensor<8xf32>) -> ()
  }) {axes = ["h", "p"], sizes = [8, 9], names = ["x"], inputs = [["p"]]} : (tensor<9xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// A length that is known at run time only: a sum over neighbours, as many as there are elements.

// CHECK-LABEL: func.func @open(
// CHECK: %[[N:.*]] = tensor.dim %[[X:.*]], %{{.*}} : tensor<?xf32>
// CHECK: %[[P:.*]] = tensor.pad %[[X]] low[1] high[%{{.*}}] {
// CHECK: linalg.generic {{.*}} ins(%[[P]], %{{.*}} : tensor<?xf32>, tensor<3xi1>)
func.func @open(%x: tensor<?xf32>) -> tensor<?xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%x_: tensor<?xf32>):
    %v = "fred.reduce"() ({
      %a = "fred.window"(%x_) {along = ["h", "r"], at = affine_map<(h, r) -> (h + r - 1)>, outside = 0.0 : f32} : (tensor<?xf32>) -> f32
      "fred.yield"(%a) : (f32) -> ()
    }) {value = "v", axes = ["h"], over = ["r"], combine = "add", initial = 0.0 : f32} : () -> tensor<?xf32>
    "fred.output"(%v) : (tensor<?xf32>) -> ()
  }) {axes = ["h", "r"], sizes = [-1, 3], names = ["x"], inputs = [["h"]]} : (tensor<?xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
