// RUN: covan-opt %s -split-input-file -p 'func.func(fred-raise)' | FileCheck %s

// Between the maximum and the sum lies an op that no chain can hold: there are two chains, one before and one after it.

// CHECK-LABEL: func.func @between(
// CHECK: %[[M:.*]] = "fred.chain"(
// CHECK: %[[O:.*]] = linalg.generic {{.*}} ins(%[[M]]
// CHECK: tensor.extract
// CHECK: %[[S:.*]] = "fred.chain"({{.*}}%[[O]]
// CHECK: return %[[S]]

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @between(%a: tensor<4x8xf32>, %t: tensor<9xf32>) -> tensor<4xf32> {
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%least : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<4x8xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.maximumf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  %o = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} ins(%m : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = arith.fptosi %in : f32 to i32
    %j = arith.index_cast %i : i32 to index
    %x = tensor.extract %t[%j] : tensor<9xf32>
    linalg.yield %x : f32
  } -> tensor<4xf32>
  %g = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%a, %o : tensor<4x8xf32>, tensor<4xf32>) outs(%g : tensor<4xf32>) {
  ^bb0(%in: f32, %p: f32, %out: f32):
    %d = arith.subf %in, %p : f32
    %s = arith.addf %d, %out : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// -----

// A number in a body, and a size of memory, lie between two reductions of one tensor as well.

// CHECK-LABEL: func.func @numbers(
// CHECK: %[[M:.*]] = "fred.chain"(
// CHECK: %[[N:.*]] = tensor.extract %[[M]]
// CHECK: %[[B:.*]] = linalg.generic
// CHECK: arith.minsi %{{.*}}, %[[N]]
// CHECK: %[[S:.*]] = "fred.chain"({{.*}}%[[B]]

#one = affine_map<(d0) -> (d0)>
#none = affine_map<(d0) -> ()>
func.func @numbers(%a: tensor<8xi64>) -> (tensor<i64>, tensor<?xi64>) {
  %zero = arith.constant 0 : i64
  %e = tensor.empty() : tensor<i64>
  %f = linalg.fill ins(%zero : i64) outs(%e : tensor<i64>) -> tensor<i64>
  %m = linalg.generic {indexing_maps = [#one, #none], iterator_types = ["reduction"]} ins(%a : tensor<8xi64>) outs(%f : tensor<i64>) {
  ^bb0(%in: i64, %out: i64):
    %s = arith.maxsi %in, %out : i64
    linalg.yield %s : i64
  } -> tensor<i64>
  %n = tensor.extract %m[] : tensor<i64>
  %size = arith.index_cast %n : i64 to index
  %memory = tensor.empty(%size) : tensor<?xi64>
  %zeros = linalg.fill ins(%zero : i64) outs(%memory : tensor<?xi64>) -> tensor<?xi64>
  %g = tensor.empty() : tensor<8xi64>
  %b = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%a : tensor<8xi64>) outs(%g : tensor<8xi64>) {
  ^bb0(%in: i64, %out: i64):
    %s = arith.minsi %in, %n : i64
    linalg.yield %s : i64
  } -> tensor<8xi64>
  %r = linalg.generic {indexing_maps = [#one, #one, #none], iterator_types = ["reduction"]} ins(%a, %b : tensor<8xi64>, tensor<8xi64>) outs(%f : tensor<i64>) {
  ^bb0(%in: i64, %p: i64, %out: i64):
    %d = arith.subi %in, %p : i64
    %s = arith.addi %d, %out : i64
    linalg.yield %s : i64
  } -> tensor<i64>
  return %r, %zeros : tensor<i64>, tensor<?xi64>
}
