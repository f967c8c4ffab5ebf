// RUN: covan-opt %s -p 'func.func(fred-raise{target=cpu fuse=always})' | FileCheck %s
// RUN: covan-opt %s -p 'func.func(fred-raise{target=cuda:sm_90a fuse=always})' | FileCheck %s

// What reads weights and constants alone is computed once, by IREE: while it compiles, where a kernel could not run.

#rows = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#at = affine_map<(i) -> (i)>

// CHECK-LABEL: func.func @constants(
// CHECK-SAME: it reads weights and constants alone
// CHECK-NOT: fred.chain
// CHECK: return
func.func @constants(%w: tensor<9x128xf32> {covan.weight = "w"}) -> tensor<8xf32> {
  %at = arith.constant dense<[0, 3, 5, 2, 1, 7, 8, 4]> : tensor<8xi64>
  %zero = arith.constant 0.0 : f32
  %m = tensor.empty() : tensor<8x128xf32>
  %g = linalg.generic {indexing_maps = [#rows], iterator_types = ["parallel", "parallel"]} outs(%m : tensor<8x128xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %a = tensor.extract %at[%i] : tensor<8xi64>
    %k = arith.index_cast %a : i64 to index
    %v = tensor.extract %w[%k, %j] : tensor<9x128xf32>
    linalg.yield %v : f32
  } -> tensor<8x128xf32>
  %e = tensor.empty() : tensor<8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]} ins(%g : tensor<8x128xf32>) outs(%f : tensor<8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// A chain of its own, if an argument decides on it: here by what is taken of a weight.
// CHECK-LABEL: func.func @taken(
// CHECK: fred.chain
func.func @taken(%w: tensor<9x128xf32> {covan.weight = "w"}, %at: tensor<64xi64>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %m = tensor.empty() : tensor<64x128xf32>
  %g = linalg.generic {indexing_maps = [#rows], iterator_types = ["parallel", "parallel"]} outs(%m : tensor<64x128xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %a = tensor.extract %at[%i] : tensor<64xi64>
    %k = arith.index_cast %a : i64 to index
    %v = tensor.extract %w[%k, %j] : tensor<9x128xf32>
    linalg.yield %v : f32
  } -> tensor<64x128xf32>
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]} ins(%g : tensor<64x128xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
