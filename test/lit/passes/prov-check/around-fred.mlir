// DEFINE: %{target} = target=cpu:x86_64-linux-gnu:znver4 fuse=always
// DEFINE: %{before} = prov-drop-table{keep=true},prov-baseline
// DEFINE: %{raise} = func.func(fred-raise{%{target}})
// DEFINE: %{kernels} = fred-kernels{%{target}}
// DEFINE: %{opt} = covan-opt %s --load-pass-plugin=%S/Inputs/false_traces.py --pass-pipeline
// RUN: %{opt}='builtin.module(%{before},%{raise},prov-check,%{kernels},prov-check,prov-lower-locations)' | FileCheck %s --check-prefix=HOLDS
// RUN: not %{opt}='builtin.module(%{before},func.func(test-swaps),%{raise},prov-check)' 2>&1 | FileCheck %s --check-prefix=SWAPS
// RUN: not %{opt}='builtin.module(%{before},%{raise},func.func(test-swaps),prov-check)' 2>&1 | FileCheck %s --check-prefix=SWAPS
// RUN: not %{opt}='builtin.module(%{before},%{raise},func.func(test-forges),prov-check)' 2>&1 | FileCheck %s --check-prefix=FORGES
// RUN: not %{opt}='builtin.module(%{before},%{raise},func.func(test-drops),%{kernels},prov-check)' 2>&1 | FileCheck %s --check-prefix=DROPS

// As the compiler runs it, with a pass in between that makes traces false: the sum is of the first argument, the largest of the second.

// HOLDS-COUNT-2: call @fred_

// SWAPS: model.py:4:0: error: 'fred.chain' op is returned as the value of sum (part 1, model.py:3), which it is not
// SWAPS: model.py:5:0: error: 'fred.chain' op is returned as the value of amax (part 2, model.py:3), which it is not
// SWAPS: error: pass 'prov-check': 2 operations of the module cannot be what the table's parts are

// FORGES: model.py:4:0: error: 'fred.chain' op has a trace that names amax (part 2, model.py:3), of which it is not given what that reads

// DROPS: error: 'func.func' op is to return the value of amax (part 2, model.py:3), which no operation gives
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
module {
  "prov.table"() ({
    "prov.action"() {id = 0, name = "f", op = "aten.f", module = "", types = [], frames = [{file = "model.py", function = "forward", internal = false, line = 3 : i64}]} : () -> ()
    "prov.part"() {id = 1, action = 0, name = "sum", op = "aten.sum.dim_IntList", inputs = [], types = [], args = "[[{\"a\":0}],[]]"} : () -> ()
    "prov.part"() {id = 2, action = 0, name = "amax", op = "aten.amax.default", inputs = [], types = [], args = "[[{\"a\":1}],[]]"} : () -> ()
  }) : () -> ()
  func.func @main(%a: tensor<64x128xf32>, %b: tensor<64x128xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
    %zero = arith.constant 0.0 : f32
    %least = arith.constant 0xFF800000 : f32
    %e = tensor.empty() : tensor<64xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32> loc("prov:1:sum"("model.py":4:0))
    %g = linalg.fill ins(%least : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32> loc("prov:2:amax"("model.py":5:0))
    %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%a : tensor<64x128xf32>) outs(%f : tensor<64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %r = arith.addf %in, %out : f32 loc("prov:1:sum"("model.py":4:0))
      linalg.yield %r : f32 loc("prov:1:sum"("model.py":4:0))
    } -> tensor<64xf32> loc("prov:1:sum"("model.py":4:0))
    %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]} ins(%b : tensor<64x128xf32>) outs(%g : tensor<64xf32>) {
    ^bb0(%in: f32, %out: f32):
      %r = arith.maximumf %in, %out : f32 loc("prov:2:amax"("model.py":5:0))
      linalg.yield %r : f32 loc("prov:2:amax"("model.py":5:0))
    } -> tensor<64xf32> loc("prov:2:amax"("model.py":5:0))
    return %s, %m : tensor<64xf32>, tensor<64xf32>
  }
}
