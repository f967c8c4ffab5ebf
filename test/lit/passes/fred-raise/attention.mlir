// RUN: covan-opt %s -p 'func.func(fred-raise,fred-print)' -o /dev/null 2>&1 | FileCheck %s
// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s --check-prefix=IR

// Both products of attention are in the chain, with all that lies between them.

#i_i = affine_map<(i) -> (i)>
#ij_0j = affine_map<(i, j) -> (0, j)>
#ij_i0 = affine_map<(i, j) -> (i, 0)>
#ij_ij = affine_map<(i, j) -> (i, j)>
#ijkl_ijk = affine_map<(i, j, k, l) -> (i, j, k)>
#ijkl_ijk0 = affine_map<(i, j, k, l) -> (i, j, k, 0)>
#ijkl_ijkl = affine_map<(i, j, k, l) -> (i, j, k, l)>
#ijkl_kl = affine_map<(i, j, k, l) -> (k, l)>
#ijkl_none = affine_map<(i, j, k, l) -> ()>
#ijklm_ijklm = affine_map<(i, j, k, l, m) -> (i, j, k, l, m)>
#ijklm_ijlm = affine_map<(i, j, k, l, m) -> (i, j, l, m)>

// Transposition, batch dimensions and sizes of 1 are a matter of axes.
//
// CHECK-LABEL: attn: chain
// CHECK-NEXT: i = 2, j = 12, k = 8, l = 12, m = 8
// CHECK-NEXT: x0[i, j, k]: f32
// CHECK-NEXT: x1[i, l, k]: f32
// CHECK-NEXT: x2[i, j, m]: f32
// CHECK-NEXT: v0[i, l, j]: f32 = add[k] (x1 * x0)
// CHECK-NEXT: v1[i, l, j]: f32 = v0 / 2.82843
// CHECK-NEXT: v2[i, l]: f32 = max[j] (v1)
// CHECK-NEXT: v3[i, l, j]: f32 = v1 - v2
// CHECK-NEXT: v4[i, l, j]: f32 = exp(v3)
// CHECK-NEXT: v5[i, l]: f32 = add[j] (v4)
// CHECK-NEXT: v6[i, l, j]: f32 = v4 / v5
// CHECK-NEXT: v7[i, l, m]: f32 = add[j] (v6 * x2)
// CHECK-NEXT: return v7
func.func @attn(%arg0: tensor<1x2x12x8xf32>, %arg1: tensor<1x2x12x8xf32>, %arg2: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %cst = arith.constant 0.000000e+00 : f32
  %c0_i64 = arith.constant 0 : i64
  %cst_0 = arith.constant 0xFF800000 : f32
  %cst_1 = arith.constant 2.8284271247461903 : f64
  %0 = tensor.empty() : tensor<1x2x8x12xf32>
  %transposed = linalg.transpose ins(%arg1 : tensor<1x2x12x8xf32>) outs(%0 : tensor<1x2x8x12xf32>) permutation = [0, 1, 3, 2] 
  %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %collapsed_2 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<1x2x8x12xf32> into tensor<2x8x12xf32>
  %1 = tensor.empty() : tensor<2x12x12xf32>
  %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
  %3 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<2x12x8xf32>, tensor<2x8x12xf32>) outs(%2 : tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
  %expanded = tensor.expand_shape %3 [[0, 1], [2], [3]] output_shape [1, 2, 12, 12] : tensor<2x12x12xf32> into tensor<1x2x12x12xf32>
  %4 = tensor.empty() : tensor<1x2x12x12xf32>
  %5 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<1x2x12x12xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %20 = arith.truncf %cst_1 : f64 to f32
    %21 = arith.divf %in, %20 : f32
    linalg.yield %21 : f32
  } -> tensor<1x2x12x12xf32>
  %6 = tensor.empty() : tensor<1x2x12xi64>
  %7 = linalg.fill ins(%c0_i64 : i64) outs(%6 : tensor<1x2x12xi64>) -> tensor<1x2x12xi64>
  %8 = tensor.empty() : tensor<1x2x12xf32>
  %9 = linalg.fill ins(%cst_0 : f32) outs(%8 : tensor<1x2x12xf32>) -> tensor<1x2x12xf32>
  %10:2 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk, #ijkl_ijk], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%5 : tensor<1x2x12x12xf32>) outs(%9, %7 : tensor<1x2x12xf32>, tensor<1x2x12xi64>) {
  ^bb0(%in: f32, %out: f32, %out_7: i64):
    %20 = linalg.index 3 : index
    %21 = arith.index_cast %20 : index to i64
    %22 = arith.maximumf %in, %out : f32
    %23 = arith.cmpf ogt, %in, %out : f32
    %24 = arith.select %23, %21, %out_7 : i64
    linalg.yield %22, %24 : f32, i64
  } -> (tensor<1x2x12xf32>, tensor<1x2x12xi64>)
  %expanded_3 = tensor.expand_shape %10#0 [[0], [1], [2, 3]] output_shape [1, 2, 12, 1] : tensor<1x2x12xf32> into tensor<1x2x12x1xf32>
  %11 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk0, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%5, %expanded_3 : tensor<1x2x12x12xf32>, tensor<1x2x12x1xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %in_7: f32, %out: f32):
    %20 = arith.subf %in, %in_7 : f32
    linalg.yield %20 : f32
  } -> tensor<1x2x12x12xf32>
  %12 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11 : tensor<1x2x12x12xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %20 = math.exp %in : f32
    linalg.yield %20 : f32
  } -> tensor<1x2x12x12xf32>
  %13 = tensor.empty() : tensor<1x2x12x1xf32>
  %14 = linalg.fill ins(%cst : f32) outs(%13 : tensor<1x2x12x1xf32>) -> tensor<1x2x12x1xf32>
  %15 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk0], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%12 : tensor<1x2x12x12xf32>) outs(%14 : tensor<1x2x12x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %20 = arith.addf %in, %out : f32
    linalg.yield %20 : f32
  } -> tensor<1x2x12x1xf32>
  %16 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk0, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%12, %15 : tensor<1x2x12x12xf32>, tensor<1x2x12x1xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %in_7: f32, %out: f32):
    %20 = arith.divf %in, %in_7 : f32
    linalg.yield %20 : f32
  } -> tensor<1x2x12x12xf32>
  %collapsed_4 = tensor.collapse_shape %16 [[0, 1], [2], [3]] : tensor<1x2x12x12xf32> into tensor<2x12x12xf32>
  %collapsed_5 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %17 = tensor.empty() : tensor<2x12x8xf32>
  %18 = linalg.fill ins(%cst : f32) outs(%17 : tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %19 = linalg.batch_matmul ins(%collapsed_4, %collapsed_5 : tensor<2x12x12xf32>, tensor<2x12x8xf32>) outs(%18 : tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %expanded_6 = tensor.expand_shape %19 [[0, 1], [2], [3]] output_shape [1, 2, 12, 8] : tensor<2x12x8xf32> into tensor<1x2x12x8xf32>
  return %expanded_6 : tensor<1x2x12x8xf32>
}

// Positions become fred.index: the mask is nowhere in memory.
//
// CHECK-LABEL: causal2: chain
// CHECK-NEXT: i = 2, j = 12, k = 8, l = 12, m = 8
// CHECK-NEXT: x0[i, j, k]: f32
// CHECK-NEXT: x1[i, l, k]: f32
// CHECK-NEXT: x2[i, j, m]: f32
// CHECK-NEXT: v0[i, l, j]: f32 = add[k] (x1 * x0)
// CHECK-NEXT: v1[i, l, j]: f32 = v0 * 0.353553
// CHECK-NEXT: v2[i, l, j]: f32 = select(index_cast(index(l)) >= index_cast(index(j)), v1, -inf)
// CHECK-NEXT: v3[i, l]: f32 = max[j] (v2)
// CHECK-NEXT: v4[i, l, j]: f32 = v2 - v3
// CHECK-NEXT: v5[i, l, j]: f32 = exp(v4)
// CHECK-NEXT: v6[i, l]: f32 = add[j] (v5)
// CHECK-NEXT: v7[i, l, j]: f32 = v5 / v6
// CHECK-NEXT: v8[i, l, m]: f32 = add[j] (v7 * x2)
// CHECK-NEXT: return v8
func.func @causal2(%arg0: tensor<1x2x12x8xf32>, %arg1: tensor<1x2x12x8xf32>, %arg2: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %c0_i64 = arith.constant 0 : i64
  %cst = arith.constant 0.000000e+00 : f32
  %cst_0 = arith.constant 0xFF800000 : f32
  %cst_1 = arith.constant dense<0xFF800000> : tensor<f32>
  %cst_2 = arith.constant 0.35355339059327379 : f64
  %0 = tensor.empty() : tensor<1x2x8x12xf32>
  %transposed = linalg.transpose ins(%arg1 : tensor<1x2x12x8xf32>) outs(%0 : tensor<1x2x8x12xf32>) permutation = [0, 1, 3, 2] 
  %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %collapsed_3 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<1x2x8x12xf32> into tensor<2x8x12xf32>
  %1 = tensor.empty() : tensor<2x12x12xf32>
  %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
  %3 = linalg.batch_matmul ins(%collapsed, %collapsed_3 : tensor<2x12x8xf32>, tensor<2x8x12xf32>) outs(%2 : tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
  %expanded = tensor.expand_shape %3 [[0, 1], [2], [3]] output_shape [1, 2, 12, 12] : tensor<2x12x12xf32> into tensor<1x2x12x12xf32>
  %4 = tensor.empty() : tensor<1x2x12x12xf32>
  %5 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<1x2x12x12xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %25 = arith.truncf %cst_2 : f64 to f32
    %26 = arith.mulf %in, %25 : f32
    linalg.yield %26 : f32
  } -> tensor<1x2x12x12xf32>
  %6 = tensor.empty() : tensor<12xi64>
  %7 = linalg.generic {indexing_maps = [#i_i], iterator_types = ["parallel"]} outs(%6 : tensor<12xi64>) {
  ^bb0(%out: i64):
    %25 = linalg.index 0 : index
    %26 = arith.index_cast %25 : index to i64
    linalg.yield %26 : i64
  } -> tensor<12xi64>
  %expanded_4 = tensor.expand_shape %7 [[0, 1]] output_shape [12, 1] : tensor<12xi64> into tensor<12x1xi64>
  %expanded_5 = tensor.expand_shape %7 [[0, 1]] output_shape [1, 12] : tensor<12xi64> into tensor<1x12xi64>
  %8 = tensor.empty() : tensor<12x12xi1>
  %9 = linalg.generic {indexing_maps = [#ij_i0, #ij_0j, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%expanded_4, %expanded_5 : tensor<12x1xi64>, tensor<1x12xi64>) outs(%8 : tensor<12x12xi1>) {
  ^bb0(%in: i64, %in_10: i64, %out: i1):
    %25 = arith.cmpi sge, %in, %in_10 : i64
    linalg.yield %25 : i1
  } -> tensor<12x12xi1>
  %10 = linalg.generic {indexing_maps = [#ijkl_kl, #ijkl_ijkl, #ijkl_none, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%9, %5, %cst_1 : tensor<12x12xi1>, tensor<1x2x12x12xf32>, tensor<f32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: i1, %in_10: f32, %in_11: f32, %out: f32):
    %25 = arith.select %in, %in_10, %in_11 : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x12xf32>
  %11 = tensor.empty() : tensor<1x2x12xi64>
  %12 = linalg.fill ins(%c0_i64 : i64) outs(%11 : tensor<1x2x12xi64>) -> tensor<1x2x12xi64>
  %13 = tensor.empty() : tensor<1x2x12xf32>
  %14 = linalg.fill ins(%cst_0 : f32) outs(%13 : tensor<1x2x12xf32>) -> tensor<1x2x12xf32>
  %15:2 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk, #ijkl_ijk], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%10 : tensor<1x2x12x12xf32>) outs(%14, %12 : tensor<1x2x12xf32>, tensor<1x2x12xi64>) {
  ^bb0(%in: f32, %out: f32, %out_10: i64):
    %25 = linalg.index 3 : index
    %26 = arith.index_cast %25 : index to i64
    %27 = arith.maximumf %in, %out : f32
    %28 = arith.cmpf ogt, %in, %out : f32
    %29 = arith.select %28, %26, %out_10 : i64
    linalg.yield %27, %29 : f32, i64
  } -> (tensor<1x2x12xf32>, tensor<1x2x12xi64>)
  %expanded_6 = tensor.expand_shape %15#0 [[0], [1], [2, 3]] output_shape [1, 2, 12, 1] : tensor<1x2x12xf32> into tensor<1x2x12x1xf32>
  %16 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk0, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%10, %expanded_6 : tensor<1x2x12x12xf32>, tensor<1x2x12x1xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %in_10: f32, %out: f32):
    %25 = arith.subf %in, %in_10 : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x12xf32>
  %17 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%16 : tensor<1x2x12x12xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %25 = math.exp %in : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x12xf32>
  %18 = tensor.empty() : tensor<1x2x12x1xf32>
  %19 = linalg.fill ins(%cst : f32) outs(%18 : tensor<1x2x12x1xf32>) -> tensor<1x2x12x1xf32>
  %20 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk0], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%17 : tensor<1x2x12x12xf32>) outs(%19 : tensor<1x2x12x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %25 = arith.addf %in, %out : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x1xf32>
  %21 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk0, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%17, %20 : tensor<1x2x12x12xf32>, tensor<1x2x12x1xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %in_10: f32, %out: f32):
    %25 = arith.divf %in, %in_10 : f32
    linalg.yield %25 : f32
  } -> tensor<1x2x12x12xf32>
  %collapsed_7 = tensor.collapse_shape %21 [[0, 1], [2], [3]] : tensor<1x2x12x12xf32> into tensor<2x12x12xf32>
  %collapsed_8 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %22 = tensor.empty() : tensor<2x12x8xf32>
  %23 = linalg.fill ins(%cst : f32) outs(%22 : tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %24 = linalg.batch_matmul ins(%collapsed_7, %collapsed_8 : tensor<2x12x12xf32>, tensor<2x12x8xf32>) outs(%23 : tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %expanded_9 = tensor.expand_shape %24 [[0, 1], [2], [3]] output_shape [1, 2, 12, 8] : tensor<2x12x8xf32> into tensor<1x2x12x8xf32>
  return %expanded_9 : tensor<1x2x12x8xf32>
}

// Keys and values that are repeated for groups of heads are read where they are: the queries of a group are rows beside
// each other.
//
// CHECK-LABEL: gqa: chain
// CHECK-NEXT: i = 2, j = 12, k = 8, l = 8, m = 24
// CHECK-NEXT: x0[i, j, k]: f32
// CHECK-NEXT: x1[i, j, l]: f32
// CHECK-NEXT: x2[i, m, k]: f32
// CHECK-NEXT: v0[i, m, j]: f32 = add[k] (x2 * x0)
// CHECK-NEXT: v1[i, m, j]: f32 = v0 / 2.82843
// CHECK-NEXT: v2[i, m]: f32 = max[j] (v1)
// CHECK-NEXT: v3[i, m, j]: f32 = v1 - v2
// CHECK-NEXT: v4[i, m, j]: f32 = exp(v3)
// CHECK-NEXT: v5[i, m]: f32 = add[j] (v4)
// CHECK-NEXT: v6[i, m, j]: f32 = v4 / v5
// CHECK-NEXT: v7[i, m, l]: f32 = add[j] (v6 * x1)
// CHECK-NEXT: return v7
//
// IR-LABEL: func.func @gqa(
// IR-SAME: %[[Q:[a-z0-9]+]]: tensor<1x4x12x8xf32>, %[[K:[a-z0-9]+]]: tensor<1x2x12x8xf32>, %[[V:[a-z0-9]+]]: tensor<1x2x12x8xf32>)
// IR-DAG: %[[KEYS:.*]] = tensor.collapse_shape %[[K]] {{.*}} into tensor<2x12x8xf32>
// IR-DAG: %[[VALUES:.*]] = tensor.collapse_shape %[[V]] {{.*}} into tensor<2x12x8xf32>
// IR: %[[QUERIES:.*]] = tensor.collapse_shape {{.*}} : tensor<2x2x12x8xf32> into tensor<2x24x8xf32>
// IR-NEXT: %[[O:.*]] = "fred.chain"(%[[KEYS]], %[[VALUES]], %[[QUERIES]]) ({
// IR: tensor.expand_shape %[[O]] {{.*}} into tensor<2x2x12x8xf32>
// IR-NOT: linalg
func.func @gqa(%arg0: tensor<1x4x12x8xf32>, %arg1: tensor<1x2x12x8xf32>, %arg2: tensor<1x2x12x8xf32>) -> tensor<1x4x12x8xf32> {
  %c0_i64 = arith.constant 0 : i64
  %cst = arith.constant 0.000000e+00 : f32
  %cst_0 = arith.constant 0xFF800000 : f32
  %cst_1 = arith.constant 2.8284271247461903 : f64
  %0 = tensor.empty() : tensor<1x2x2x12x8xf32>
  %1 = linalg.generic {indexing_maps = [#ijklm_ijlm, #ijklm_ijklm], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<1x2x12x8xf32>) outs(%0 : tensor<1x2x2x12x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<1x2x2x12x8xf32>
  %collapsed = tensor.collapse_shape %1 [[0], [1, 2], [3], [4]] : tensor<1x2x2x12x8xf32> into tensor<1x4x12x8xf32>
  %2 = linalg.generic {indexing_maps = [#ijklm_ijlm, #ijklm_ijklm], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<1x2x12x8xf32>) outs(%0 : tensor<1x2x2x12x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<1x2x2x12x8xf32>
  %3 = tensor.empty() : tensor<1x4x8x12xf32>
  %transposed = linalg.transpose ins(%collapsed : tensor<1x4x12x8xf32>) outs(%3 : tensor<1x4x8x12xf32>) permutation = [0, 1, 3, 2] 
  %collapsed_2 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<1x4x12x8xf32> into tensor<4x12x8xf32>
  %collapsed_3 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<1x4x8x12xf32> into tensor<4x8x12xf32>
  %4 = tensor.empty() : tensor<4x12x12xf32>
  %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<4x12x12xf32>) -> tensor<4x12x12xf32>
  %6 = linalg.batch_matmul ins(%collapsed_2, %collapsed_3 : tensor<4x12x8xf32>, tensor<4x8x12xf32>) outs(%5 : tensor<4x12x12xf32>) -> tensor<4x12x12xf32>
  %expanded = tensor.expand_shape %6 [[0, 1], [2], [3]] output_shape [1, 4, 12, 12] : tensor<4x12x12xf32> into tensor<1x4x12x12xf32>
  %7 = tensor.empty() : tensor<1x4x12x12xf32>
  %8 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<1x4x12x12xf32>) outs(%7 : tensor<1x4x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %23 = arith.truncf %cst_1 : f64 to f32
    %24 = arith.divf %in, %23 : f32
    linalg.yield %24 : f32
  } -> tensor<1x4x12x12xf32>
  %9 = tensor.empty() : tensor<1x4x12xi64>
  %10 = linalg.fill ins(%c0_i64 : i64) outs(%9 : tensor<1x4x12xi64>) -> tensor<1x4x12xi64>
  %11 = tensor.empty() : tensor<1x4x12xf32>
  %12 = linalg.fill ins(%cst_0 : f32) outs(%11 : tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %13:2 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk, #ijkl_ijk], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%8 : tensor<1x4x12x12xf32>) outs(%12, %10 : tensor<1x4x12xf32>, tensor<1x4x12xi64>) {
  ^bb0(%in: f32, %out: f32, %out_8: i64):
    %23 = linalg.index 3 : index
    %24 = arith.index_cast %23 : index to i64
    %25 = arith.maximumf %in, %out : f32
    %26 = arith.cmpf ogt, %in, %out : f32
    %27 = arith.select %26, %24, %out_8 : i64
    linalg.yield %25, %27 : f32, i64
  } -> (tensor<1x4x12xf32>, tensor<1x4x12xi64>)
  %expanded_4 = tensor.expand_shape %13#0 [[0], [1], [2, 3]] output_shape [1, 4, 12, 1] : tensor<1x4x12xf32> into tensor<1x4x12x1xf32>
  %14 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk0, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8, %expanded_4 : tensor<1x4x12x12xf32>, tensor<1x4x12x1xf32>) outs(%7 : tensor<1x4x12x12xf32>) {
  ^bb0(%in: f32, %in_8: f32, %out: f32):
    %23 = arith.subf %in, %in_8 : f32
    linalg.yield %23 : f32
  } -> tensor<1x4x12x12xf32>
  %15 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14 : tensor<1x4x12x12xf32>) outs(%7 : tensor<1x4x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %23 = math.exp %in : f32
    linalg.yield %23 : f32
  } -> tensor<1x4x12x12xf32>
  %16 = tensor.empty() : tensor<1x4x12x1xf32>
  %17 = linalg.fill ins(%cst : f32) outs(%16 : tensor<1x4x12x1xf32>) -> tensor<1x4x12x1xf32>
  %18 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk0], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%15 : tensor<1x4x12x12xf32>) outs(%17 : tensor<1x4x12x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %23 = arith.addf %in, %out : f32
    linalg.yield %23 : f32
  } -> tensor<1x4x12x1xf32>
  %19 = linalg.generic {indexing_maps = [#ijkl_ijkl, #ijkl_ijk0, #ijkl_ijkl], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15, %18 : tensor<1x4x12x12xf32>, tensor<1x4x12x1xf32>) outs(%7 : tensor<1x4x12x12xf32>) {
  ^bb0(%in: f32, %in_8: f32, %out: f32):
    %23 = arith.divf %in, %in_8 : f32
    linalg.yield %23 : f32
  } -> tensor<1x4x12x12xf32>
  %collapsed_5 = tensor.collapse_shape %19 [[0, 1], [2], [3]] : tensor<1x4x12x12xf32> into tensor<4x12x12xf32>
  %collapsed_6 = tensor.collapse_shape %2 [[0, 1, 2], [3], [4]] : tensor<1x2x2x12x8xf32> into tensor<4x12x8xf32>
  %20 = tensor.empty() : tensor<4x12x8xf32>
  %21 = linalg.fill ins(%cst : f32) outs(%20 : tensor<4x12x8xf32>) -> tensor<4x12x8xf32>
  %22 = linalg.batch_matmul ins(%collapsed_5, %collapsed_6 : tensor<4x12x12xf32>, tensor<4x12x8xf32>) outs(%21 : tensor<4x12x8xf32>) -> tensor<4x12x8xf32>
  %expanded_7 = tensor.expand_shape %22 [[0, 1], [2], [3]] output_shape [1, 4, 12, 8] : tensor<4x12x8xf32> into tensor<1x4x12x8xf32>
  return %expanded_7 : tensor<1x4x12x8xf32>
}
