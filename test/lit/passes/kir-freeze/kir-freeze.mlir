// RUN: covan-opt %s -p 'func.func(kir-freeze)' | FileCheck %s

// Operators by what they give, and which they read: through a view, here.

// CHECK: func.func @two
// CHECK-SAME: kir.frozen = "[{\22label\22:\22tensor<5xf32>\22,\22inputs\22:[]},{\22label\22:\22tensor<5xf32>\22,\22inputs\22:[0]}]"
func.func @two(%arg0: tensor<5x7xf32>, %wide: tensor<5x7xf32>) -> tensor<5xf32> {
  %m = "kir.reduction"(%arg0) ({
    ^bb0(%arg1: tensor<5x7xf32>):
      %1 = "fred.reduce"() ({
        %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%2) : (f32) -> ()
      }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
      "fred.output"(%1) : (tensor<5xf32>) -> ()
    }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "f32", mode = "max", over = ["j"], results = [{}], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  %view = tensor.expand_shape %m [[0, 1]] output_shape [5, 1] : tensor<5xf32> into tensor<5x1xf32>
  %e = tensor.insert_slice %view into %wide[0, 0] [5, 1] [1, 1] : tensor<5x1xf32> into tensor<5x7xf32>
  %n = "kir.reduction"(%e) ({
    ^bb0(%arg1: tensor<5x7xf32>):
      %1 = "fred.reduce"() ({
        %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%2) : (f32) -> ()
      }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
      "fred.output"(%1) : (tensor<5xf32>) -> ()
    }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "f32", mode = "max", over = ["j"], results = [{}], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %n : tensor<5xf32>
}
