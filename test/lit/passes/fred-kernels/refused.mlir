// RUN: covan-opt %s -p 'func.func(fred-raise{target=cpu:x86_64-linux-gnu:znver4})' | FileCheck %s --check-prefix=RAISE
// RUN: covan-opt %s -p 'func.func(fred-raise)' -p 'fred-kernels{target=cpu:x86_64-linux-gnu:znver4}' | FileCheck %s --check-prefix=LOWER

// A kernel of six elements does not pay: fred-raise for a target leaves the ops as they are, and says why.
// A chain that was raised all the same, because no target was asked, becomes linalg again.

// RAISE-LABEL: func.func @small(
// RAISE-SAME: covan.decisions = {{.*}}it does not pay
// RAISE-NOT: fred.chain
// RAISE: linalg.generic

// LOWER-LABEL: func.func @small(
// LOWER-NOT: fred.chain
// LOWER-NOT: call
// LOWER: linalg.generic
func.func @small(%x: tensor<6xf32>) -> tensor<f32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<f32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> ()>], iterator_types = ["reduction"]} ins(%x : tensor<6xf32>) outs(%f : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}
