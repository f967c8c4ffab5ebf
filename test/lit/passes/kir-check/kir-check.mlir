// RUN: covan-opt %s -p 'func.func(kir-freeze),kir-check' | FileCheck %s
// RUN: not covan-opt %s -p 'func.func(kir-freeze,cse),kir-check' 2>&1 >/dev/null | FileCheck %s --check-prefix=MERGED
// RUN: covan-opt %s -p 'func.func(kir-freeze),fred-kernels{target=cpu fuse=always},kir-check' | FileCheck %s --check-prefix=CALLS
// RUN: not covan-opt %s -p 'func.func(kir-freeze,kir-lower,fred-lower),kir-check' 2>&1 >/dev/null | FileCheck %s --check-prefix=GONE

// Two operators that compute the same are two, until a pass merges them.

// CHECK: "kir.reduction"
// CHECK: "kir.reduction"
// MERGED: kernels and operators are not one to one: there are 1 of tensor<5xf32>, and there were 2
// CALLS-COUNT-2: call @fred_
// GONE: kernels and operators are not one to one: there are 0 of tensor<5xf32>, and there were 2
func.func @twins(%arg0: tensor<5x7xf32>) -> (tensor<5xf32>, tensor<5xf32>) {
  %m = "kir.reduction"(%arg0) ({
    ^bb0(%arg1: tensor<5x7xf32>):
      %1 = "fred.reduce"() ({
        %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%2) : (f32) -> ()
      }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
      "fred.output"(%1) : (tensor<5xf32>) -> ()
    }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "f32", mode = "max", over = ["j"], results = [{}], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  %n = "kir.reduction"(%arg0) ({
    ^bb0(%arg1: tensor<5x7xf32>):
      %1 = "fred.reduce"() ({
        %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%2) : (f32) -> ()
      }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
      "fred.output"(%1) : (tensor<5xf32>) -> ()
    }, {}) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x0"], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>, accumulator = "f32", mode = "max", over = ["j"], results = [{}], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %m, %n : tensor<5xf32>, tensor<5xf32>
}
