// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// A maximum over two axes, taken over one after the other, is one reduction: the axes are one, and so are the sweeps.

// CHECK-LABEL: func.func @deviations
// CHECK: "fred.chain"
// CHECK: "fred.reduce"
// CHECK: combine = "max", {{.*}}over = ["j"]
// CHECK: arith.subf
// CHECK-NOT: "fred.reduce"
// CHECK: sizes = [5, 77]
// CHECK-NOT: linalg.generic
func.func @deviations(%x: tensor<5x7x11xf32>) -> tensor<5x7x11xf32> {
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %start = linalg.fill ins(%least : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %inner = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : tensor<5x7x11xf32>) outs(%start : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.maximumf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<5x7xf32>
  %f = tensor.empty() : tensor<5xf32>
  %first = linalg.fill ins(%least : f32) outs(%f : tensor<5xf32>) -> tensor<5xf32>
  %outer = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>], iterator_types = ["parallel", "reduction"]} ins(%inner : tensor<5x7xf32>) outs(%first : tensor<5xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.maximumf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<5xf32>
  %g = tensor.empty() : tensor<5x7x11xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i)>, affine_map<(i, j, k) -> (i, j, k)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %outer : tensor<5x7x11xf32>, tensor<5xf32>) outs(%g : tensor<5x7x11xf32>) {
  ^bb0(%a: f32, %m: f32, %b: f32):
    %s = arith.subf %a, %m : f32
    linalg.yield %s : f32
  } -> tensor<5x7x11xf32>
  return %d : tensor<5x7x11xf32>
}
