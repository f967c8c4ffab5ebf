// RUN: covan-opt %s -p 'func.func(fred-raise{target=cpu:x86_64-linux-gnu:znver4 fuse=always})' | FileCheck %s
// RUN: sed 's/= "\[{.*}\]"/= "none"/' %s | not covan-opt -p 'func.func(fred-raise{target=cpu:x86_64-linux-gnu:znver4 fuse=always})' 2>&1 | FileCheck %s --check-prefix=MALFORMED

// A schedule that was measured to be the best is taken in place of the predicted one (unroll = 4), and the decision says so. Its workload is
// the digest of what the chain computes.

// CHECK-LABEL: func.func @sum(
// CHECK-SAME: \22schedule\22: {{.*}}\22unroll\22: 1,
// CHECK-SAME: \22measured\22: 3e-06

// MALFORMED: error: pass 'fred-raise': the module's attribute covan.records holds no measured schedules: JSON is malformed
module attributes {covan.records = "[{\"schedule\":\"{\\\"ahead\\\":true,\\\"block\\\":128,\\\"keep\\\":[],\\\"lane\\\":\\\"j\\\",\\\"lanes\\\":16,\\\"nontemporal\\\":false,\\\"parallel\\\":[[\\\"\\\",4]],\\\"shape\\\":\\\"rows\\\",\\\"split\\\":1,\\\"stream\\\":\\\"j\\\",\\\"unroll\\\":1,\\\"vectors\\\":2}\",\"seconds\":3e-06,\"template\":\"rows\",\"workload\":\"884865c17f7ce1aed251df58016ab4c0e4c94a5a6607bab69d3ae12dba1864c6\"}]"} {
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
}
