// RUN: covan-opt %s -p 'func.func(fred-schedule{target=cuda list=true})' 2>&1 | FileCheck %s --check-prefix=CUDA
// RUN: covan-opt %s -p 'func.func(fred-schedule{target=cuda machine=sm_90a override=num_warps=2})' | FileCheck %s --check-prefix=WARPS
// RUN: covan-opt %s -p 'func.func(fred-schedule{target=vulkan list=true})' 2>&1 | FileCheck %s --check-prefix=VULKAN
// RUN: not covan-opt %s -p 'func.func(fred-schedule{target=cuda machine=sm_10})' 2>&1 | FileCheck %s --check-prefix=MACHINE
// RUN: not covan-opt %s -p 'func.func(fred-schedule{target=vulkan machine-with=cores=4})' 2>&1 | FileCheck %s --check-prefix=WITH

// Every target lists its schedules; the one that is predicted to be fastest comes first.

// CUDA: 0: {{[0-9.eE+-]+}} s tiles: shape=whole rows=['i'] block_rows={{[0-9]+}} block_stream=1024
// CUDA: 1: {{[0-9.eE+-]+}} s tiles: shape={{whole|loop}}
// CUDA: predicted_seconds = {{[0-9.eE+-]+}} : f64
// CUDA-SAME: schedule = {backwards = false, block_rows = {{[0-9]+}} : i64, block_stream = 1024 : i64,

// WARPS: num_warps = 2 : i64

// Vulkan has one: lanes and blocks are of one element.

// VULKAN: 0: {{[0-9.eE+-]+}} s rows: shape=rows lane=j stream=j
// VULKAN-NOT: {{^}}1:
// VULKAN: schedule = {ahead = false, block = 1 : i64, {{.*}}lanes = 1 : i64

// MACHINE: there is no machine 'sm_10': sm_80, sm_86, sm_89, sm_90, sm_90a
// WITH: a machine has no number 'cores' to change: flops, bandwidth, line, dispatch, units, own, iterations
func.func @f(%x: tensor<64x1000xf32>) -> tensor<64xf32> {
  %y = "fred.chain"(%x) ({
  ^bb0(%in: tensor<64x1000xf32>):
    %m = "fred.reduce"() ({
      %e = "fred.read"(%in) : (tensor<64x1000xf32>) -> f32
      "fred.yield"(%e) : (f32) -> ()
    }) {value = "m", axes = ["i"], over = ["j"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<64xf32>
    "fred.output"(%m) : (tensor<64xf32>) -> ()
  }) {axes = ["i", "j"], sizes = [64, 1000], names = ["x"], inputs = [["i", "j"]], operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>} : (tensor<64x1000xf32>) -> tensor<64xf32>
  return %y : tensor<64xf32>
}
