// RUN: %segments %s | covan-opt | covan-opt | FileCheck %s
// RUN: %segments %s | covan-opt --emit-bytecode | covan-opt | FileCheck %s
// RUN: %segments %s | covan-opt -p canonicalize -p cse | FileCheck %s

// A fused form prints, parses and goes through bytecode; cleaning up leaves it a fused form.

// CHECK-LABEL: func.func @f(
// CHECK: "fred.fused"(%arg0) ({
// CHECK: "fred.reduce"
// CHECK: }, {
// CHECK: "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
// CHECK: "fred.rolling"() ({
// CHECK: value = "l.local"}
// CHECK: value = "l.new"}
// CHECK: "fred.next"
// CHECK: "fred.next"
// CHECK: state_axes = {{\[\[}}"i"{{\]\]}}, states = ["l"]} : () -> tensor<5xf32>
// CHECK: "fred.output"
func.func @f(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %0 = "fred.fused"(%arg0) ({
  ^bb0(%arg1: tensor<5x7xf32>):
    %1 = "fred.reduce"() ({
      %2 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%2) : (f32) -> ()
    }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l"} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }, {
  ^bb0(%arg1: tensor<5x7xf32>):
    "fred.sweep"() {axes = ["j"], why = ""} : () -> ()
    %1 = "fred.rolling"() ({
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.reduce"() ({
        %4 = "fred.read"(%arg1) : (tensor<5x7xf32>) -> f32
        "fred.yield"(%4) : (f32) -> ()
      }) {axes = ["i"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "l.local"} : () -> tensor<5xf32>
      %3 = "fred.map"() ({
        %4 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        %5 = "fred.read"(%2) : (tensor<5xf32>) -> f32
        %6 = arith.addf %4, %5 : f32
        "fred.yield"(%6) : (f32) -> ()
      }) {axes = ["i"], value = "l.new"} : () -> tensor<5xf32>
      "fred.next"(%3) : (tensor<5xf32>) -> ()
    }, {
    ^bb0(%arg2: tensor<5xf32>):
      %2 = "fred.map"() ({
        %3 = "fred.read"(%arg2) : (tensor<5xf32>) -> f32
        "fred.yield"(%3) : (f32) -> ()
      }) {axes = ["i"], value = "l"} : () -> tensor<5xf32>
      "fred.next"(%2) : (tensor<5xf32>) -> ()
    }, {
    }) {axes = ["j"], initials = [0.000000e+00 : f32], state_axes = [["i"]], states = ["l"]} : () -> tensor<5xf32>
    "fred.output"(%1) : (tensor<5xf32>) -> ()
  }) {axes = ["i", "j"], inputs = [["i", "j"]], names = ["x"], refusals = [], rewrites = [], sizes = [5, 7]} : (tensor<5x7xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}
