// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// A reader of the first result stands before the op that gives the chain its second input: it is moved behind the chain.

// CHECK-LABEL: func.func @early(
// CHECK: %[[Y:.*]] = tensor.insert
// CHECK-NEXT: %[[R:.*]]:2 = "fred.chain"(%{{.*}}, %[[Y]]) ({
// CHECK: %[[E:.*]] = tensor.extract %[[R]]#0
// CHECK: return %[[E]], %[[R]]#1

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @early(%a: tensor<4x8xf32>, %t: tensor<4x8xf32>, %i: index) -> (f32, tensor<4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<4x8xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  %x = tensor.extract %m[%i] : tensor<4xf32>
  %y = tensor.insert %zero into %t[%i, %i] : tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [#id, #id, #row, #row], iterator_types = ["parallel", "reduction"]} ins(%a, %y, %m : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>) outs(%f : tensor<4xf32>) {
  ^bb0(%in: f32, %other: f32, %p: f32, %out: f32):
    %d = arith.subf %in, %p : f32
    %q = arith.mulf %d, %other : f32
    %s = arith.addf %q, %out : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %x, %r : f32, tensor<4xf32>
}
