// RUN: covan-opt %s -p 'func.func(fred-raise{target=cpu:x86_64-linux-gnu:znver4 fuse=always})' -p 'fred-kernels{target=cpu:x86_64-linux-gnu:znver4 fuse=always}' | FileCheck %s

// A chain becomes a call of its kernel, whose declaration holds the code: the executable sources that IREE compiles. What was decided stays with the
// function: this is what `covan explain` tells.

// CHECK-LABEL: func.func @sum(
// CHECK-SAME: %[[X:.*]]: tensor<64x128xf32>)
// CHECK-SAME: covan.decisions = {{.*}}a chain of 1 reductions in 1 steps (i=64 j=128)
// CHECK-NEXT: %[[S:.*]] = call @[[SUM:fred_add_64x128_f32_[0-9a-f]+]](%[[X]]) : (tensor<64x128xf32>) -> tensor<64xf32>
// CHECK-NEXT: return %[[S]]
func.func @sum(%x: tensor<64x128xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x128xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// Equal chains share a kernel.

// CHECK-LABEL: func.func @again(
// CHECK: call @[[SUM]](
func.func @again(%x: tensor<64x128xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<64x128xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}

// A size that is known at run time only is an argument of the call.

// CHECK-LABEL: func.func @open(
// CHECK-SAME: %[[X:.*]]: tensor<?x128xf32>)
// CHECK: call @[[OPEN:fred_add_Dx128_f32_[0-9a-f]+]](%[[X]], %{{.*}}) : (tensor<?x128xf32>, index) -> tensor<?xf32>
func.func @open(%x: tensor<?x128xf32>) -> tensor<?xf32> {
  %zero = arith.constant 0.0 : f32
  %first = arith.constant 0 : index
  %n = tensor.dim %x, %first : tensor<?x128xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<?x128xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// CHECK: func.func private @[[SUM]](tensor<64x128xf32>) -> tensor<64xf32> attributes {covan.kernel = {{.*}}hal.executable.source
// CHECK: func.func private @[[OPEN]](tensor<?x128xf32>, index) -> tensor<?xf32> attributes {covan.kernel =
