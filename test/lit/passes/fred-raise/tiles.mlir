// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

#ij = affine_map<(d0, d1) -> (d0, d1)>

// Products along the rows and along the columns of a value that is larger than what it comes from are one chain with
// it, and with what else gives elements of it: the gradients of a product of exp(q k).
// CHECK-LABEL: func.func @gradients(
// CHECK-NOT: linalg
// CHECK: %[[R:.*]]:3 = "fred.chain"(%arg0, %arg1, %arg3, %arg2) ({
// CHECK: "fred.reduce"{{.*}}
// CHECK: over = ["[[D:.]]"], value = "[[S:v.]]"
// CHECK: "fred.map"
// CHECK: math.exp
// CHECK: "fred.reduce"
// CHECK: "fred.reduce"
// CHECK: "fred.map"
// CHECK: arith.mulf
// CHECK: "fred.reduce"
// CHECK: "fred.reduce"
// CHECK-NOT: linalg
// CHECK: return
func.func @gradients(%q: tensor<64x4xf32>, %k: tensor<4x64xf32>, %v: tensor<6x64xf32>, %o: tensor<64x6xf32>) -> (tensor<64x4xf32>, tensor<4x64xf32>, tensor<64x6xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = linalg.matmul ins(%q, %k : tensor<64x4xf32>, tensor<4x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %p = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %x = math.exp %in : f32
    linalg.yield %x : f32
  } -> tensor<64x64xf32>
  %t = linalg.transpose ins(%p : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) permutation = [1, 0]
  %ev = tensor.empty() : tensor<64x6xf32>
  %fv = linalg.fill ins(%zero : f32) outs(%ev : tensor<64x6xf32>) -> tensor<64x6xf32>
  %dv = linalg.matmul ins(%t, %o : tensor<64x64xf32>, tensor<64x6xf32>) outs(%fv : tensor<64x6xf32>) -> tensor<64x6xf32>
  %dp = linalg.matmul ins(%o, %v : tensor<64x6xf32>, tensor<6x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %ds = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%p, %dp : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %of: f32, %out: f32):
    %x = arith.mulf %in, %of : f32
    linalg.yield %x : f32
  } -> tensor<64x64xf32>
  %ek = tensor.empty() : tensor<64x4xf32>
  %tk = linalg.transpose ins(%k : tensor<4x64xf32>) outs(%ek : tensor<64x4xf32>) permutation = [1, 0]
  %fk = linalg.fill ins(%zero : f32) outs(%ek : tensor<64x4xf32>) -> tensor<64x4xf32>
  %dq = linalg.matmul ins(%ds, %tk : tensor<64x64xf32>, tensor<64x4xf32>) outs(%fk : tensor<64x4xf32>) -> tensor<64x4xf32>
  %eq = tensor.empty() : tensor<4x64xf32>
  %tq = linalg.transpose ins(%q : tensor<64x4xf32>) outs(%eq : tensor<4x64xf32>) permutation = [1, 0]
  %fq = linalg.fill ins(%zero : f32) outs(%eq : tensor<4x64xf32>) -> tensor<4x64xf32>
  %dk = linalg.matmul ins(%tq, %ds : tensor<4x64xf32>, tensor<64x64xf32>) outs(%fq : tensor<4x64xf32>) -> tensor<4x64xf32>
  return %dq, %dk, %dv : tensor<64x4xf32>, tensor<4x64xf32>, tensor<64x6xf32>
}

// What is returned is in memory anyway: products of it are chains of their own.
// CHECK-LABEL: func.func @returned(
// CHECK: %[[S:.*]] = "fred.chain"(%arg0, %arg1)
// CHECK: %[[Y:.*]] = "fred.chain"(%[[S]], %arg2)
// CHECK: return %[[S]], %[[Y]]
func.func @returned(%q: tensor<64x4xf32>, %k: tensor<4x64xf32>, %v: tensor<64x4xf32>) -> (tensor<64x64xf32>, tensor<64x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = linalg.matmul ins(%q, %k : tensor<64x4xf32>, tensor<4x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %ey = tensor.empty() : tensor<64x4xf32>
  %fy = linalg.fill ins(%zero : f32) outs(%ey : tensor<64x4xf32>) -> tensor<64x4xf32>
  %y = linalg.matmul ins(%s, %v : tensor<64x64xf32>, tensor<64x4xf32>) outs(%fy : tensor<64x4xf32>) -> tensor<64x4xf32>
  return %s, %y : tensor<64x64xf32>, tensor<64x4xf32>
}
