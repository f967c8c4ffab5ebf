// RUN: %segments %s | covan-opt -p 'func.func(fred-lower)' | FileCheck %s

// A size that is known at run time only is asked of an input.

// CHECK-LABEL: func.func @dynamic(
// CHECK-SAME: %[[X:.*]]: tensor<?x7xf32>
// CHECK: %[[N:.*]] = tensor.dim %[[X]], %{{.*}} : tensor<?x7xf32>
// CHECK: tensor.empty(%[[N]]) : tensor<?xf32>
// CHECK: linalg.generic
// CHECK: arith.maximumf
func.func @dynamic(%x: tensor<?x7xf32>) -> tensor<?xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<?x7xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<?x7xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<?xf32>
    "fred.output"(%m) : (tensor<?xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [-1, 7], names = ["x"], inputs = [["i", "j"]]} : (tensor<?x7xf32>) -> tensor<?xf32>
  return %y : tensor<?xf32>
}
