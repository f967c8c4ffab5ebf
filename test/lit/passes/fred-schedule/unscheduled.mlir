// RUN: %segments %s | covan-opt -p 'func.func(fred-schedule)' | FileCheck %s

// What no shape of code holds says why.

// CHECK: unscheduled = "an input is returned"
func.func @f(%x: tensor<5x7xf32>) -> (tensor<5xf32>, tensor<5x7xf32>) {
  %y:2 = "fred.chain"(%x) ({
  ^bb0(%in: tensor<5x7xf32>):
    %l = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<5x7xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "l", axes = ["i"], over = ["j"], combine = "add", initial = 0.0 : f32} : () -> tensor<5xf32>
    "fred.output"(%l) : (tensor<5xf32>) -> ()
    "fred.output"(%in) : (tensor<5x7xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<5x7xf32>) -> (tensor<5xf32>, tensor<5x7xf32>)
  return %y#0, %y#1 : tensor<5xf32>, tensor<5x7xf32>
}
