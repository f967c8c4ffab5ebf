// RUN: covan-opt %s -p 'func.func(fred-raise,fred-print)' -o /dev/null 2>&1 | FileCheck %s
// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s --check-prefix=IR

// Reductions over rows, and what is computed with them, as one chain.

#i_i = affine_map<(i) -> (i)>
#ij_i = affine_map<(i, j) -> (i)>
#ij_i0 = affine_map<(i, j) -> (i, 0)>
#ij_ij = affine_map<(i, j) -> (i, j)>
#ijk_i = affine_map<(i, j, k) -> (i)>
#ijk_ij = affine_map<(i, j, k) -> (i, j)>
#ijk_ij0 = affine_map<(i, j, k) -> (i, j, 0)>
#ijk_ijk = affine_map<(i, j, k) -> (i, j, k)>
#ijk_k = affine_map<(i, j, k) -> (k)>

// The maximum comes with its position, which nobody reads; sizes of 1 are no axes.
//
// CHECK-LABEL: softmax: chain
// CHECK-NEXT: i = 5, j = 7
// CHECK-NEXT: x0[i, j]: f32
// CHECK-NEXT: v0[i]: f32 = max[j] (x0)
// CHECK-NEXT: v1[i, j]: f32 = x0 - v0
// CHECK-NEXT: v2[i, j]: f32 = exp(v1)
// CHECK-NEXT: v3[i]: f32 = add[j] (v2)
// CHECK-NEXT: v4[i, j]: f32 = v2 / v3
// CHECK-NEXT: return v4
//
// IR-LABEL: func.func @softmax(
// IR-SAME: %[[X:.*]]: tensor<5x7xf32>)
// IR-NEXT: %[[Y:.*]] = "fred.chain"(%[[X]]) ({
// IR-NEXT: ^bb0(%[[IN:.*]]: tensor<5x7xf32>):
// IR-NEXT: %[[M:.*]] = "fred.reduce"() ({
// IR-NEXT: %[[E:.*]] = "fred.read"(%[[IN]]) : (tensor<5x7xf32>) -> f32
// IR-NEXT: "fred.yield"(%[[E]]) : (f32) -> ()
// IR-NEXT: }) {axes = ["i"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v0"} : () -> tensor<5xf32>
// IR: "fred.output"
// IR-NEXT: }) {axes = ["i", "j"], {{.*}}names = ["x0"], {{.*}}sizes = [5, 7]}
// IR-NEXT: return %[[Y]]
func.func @softmax(%arg0: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %c0_i64 = arith.constant 0 : i64
  %cst = arith.constant 0xFF800000 : f32
  %cst_0 = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<5xi64>
  %1 = linalg.fill ins(%c0_i64 : i64) outs(%0 : tensor<5xi64>) -> tensor<5xi64>
  %2 = tensor.empty() : tensor<5xf32>
  %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<5xf32>) -> tensor<5xf32>
  %4:2 = linalg.generic {indexing_maps = [#ij_ij, #ij_i, #ij_i], iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<5x7xf32>) outs(%3, %1 : tensor<5xf32>, tensor<5xi64>) {
  ^bb0(%in: f32, %out: f32, %out_1: i64):
    %12 = linalg.index 1 : index
    %13 = arith.index_cast %12 : index to i64
    %14 = arith.maximumf %in, %out : f32
    %15 = arith.cmpf ogt, %in, %out : f32
    %16 = arith.select %15, %13, %out_1 : i64
    linalg.yield %14, %16 : f32, i64
  } -> (tensor<5xf32>, tensor<5xi64>)
  %expanded = tensor.expand_shape %4#0 [[0, 1]] output_shape [5, 1] : tensor<5xf32> into tensor<5x1xf32>
  %5 = tensor.empty() : tensor<5x7xf32>
  %6 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%arg0, %expanded : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %12 = arith.subf %in, %in_1 : f32
    linalg.yield %12 : f32
  } -> tensor<5x7xf32>
  %7 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<5x7xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %12 = math.exp %in : f32
    linalg.yield %12 : f32
  } -> tensor<5x7xf32>
  %8 = tensor.empty() : tensor<5x1xf32>
  %9 = linalg.fill ins(%cst_0 : f32) outs(%8 : tensor<5x1xf32>) -> tensor<5x1xf32>
  %10 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0], iterator_types = ["parallel", "reduction"]} ins(%7 : tensor<5x7xf32>) outs(%9 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %12 = arith.addf %in, %out : f32
    linalg.yield %12 : f32
  } -> tensor<5x1xf32>
  %11 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%7, %10 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %12 = arith.divf %in, %in_1 : f32
    linalg.yield %12 : f32
  } -> tensor<5x7xf32>
  return %11 : tensor<5x7xf32>
}

// The logarithm of the sum is computed once per row.
//
// CHECK-LABEL: logsoftmax: chain
// CHECK-NEXT: i = 5, j = 7
// CHECK-NEXT: x0[i, j]: f32
// CHECK-NEXT: v0[i]: f32 = max[j] (x0)
// CHECK-NEXT: v1[i, j]: f32 = x0 - v0
// CHECK-NEXT: v2[i, j]: f32 = exp(v1)
// CHECK-NEXT: v3[i]: f32 = add[j] (v2)
// CHECK-NEXT: v4[i]: f32 = log(v3)
// CHECK-NEXT: v5[i, j]: f32 = v1 - v4
// CHECK-NEXT: return v5
func.func @logsoftmax(%arg0: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %c0_i64 = arith.constant 0 : i64
  %cst = arith.constant 0xFF800000 : f32
  %cst_0 = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<5xi64>
  %1 = linalg.fill ins(%c0_i64 : i64) outs(%0 : tensor<5xi64>) -> tensor<5xi64>
  %2 = tensor.empty() : tensor<5xf32>
  %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<5xf32>) -> tensor<5xf32>
  %4:2 = linalg.generic {indexing_maps = [#ij_ij, #ij_i, #ij_i], iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<5x7xf32>) outs(%3, %1 : tensor<5xf32>, tensor<5xi64>) {
  ^bb0(%in: f32, %out: f32, %out_1: i64):
    %13 = linalg.index 1 : index
    %14 = arith.index_cast %13 : index to i64
    %15 = arith.maximumf %in, %out : f32
    %16 = arith.cmpf ogt, %in, %out : f32
    %17 = arith.select %16, %14, %out_1 : i64
    linalg.yield %15, %17 : f32, i64
  } -> (tensor<5xf32>, tensor<5xi64>)
  %expanded = tensor.expand_shape %4#0 [[0, 1]] output_shape [5, 1] : tensor<5xf32> into tensor<5x1xf32>
  %5 = tensor.empty() : tensor<5x7xf32>
  %6 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%arg0, %expanded : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %13 = arith.subf %in, %in_1 : f32
    linalg.yield %13 : f32
  } -> tensor<5x7xf32>
  %7 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<5x7xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %13 = math.exp %in : f32
    linalg.yield %13 : f32
  } -> tensor<5x7xf32>
  %8 = tensor.empty() : tensor<5x1xf32>
  %9 = linalg.fill ins(%cst_0 : f32) outs(%8 : tensor<5x1xf32>) -> tensor<5x1xf32>
  %10 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0], iterator_types = ["parallel", "reduction"]} ins(%7 : tensor<5x7xf32>) outs(%9 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %13 = arith.addf %in, %out : f32
    linalg.yield %13 : f32
  } -> tensor<5x1xf32>
  %11 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%10 : tensor<5x1xf32>) outs(%8 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %13 = math.log %in : f32
    linalg.yield %13 : f32
  } -> tensor<5x1xf32>
  %12 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%6, %11 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %13 = arith.subf %in, %in_1 : f32
    linalg.yield %13 : f32
  } -> tensor<5x7xf32>
  return %12 : tensor<5x7xf32>
}

// A square is a product.
//
// CHECK-LABEL: rms_plain: chain
// CHECK-NEXT: i = 5, j = 7
// CHECK-NEXT: x0[i, j]: f32
// CHECK-NEXT: v0[i, j]: f32 = x0 * x0
// CHECK-NEXT: v1[i]: f32 = add[j] (v0)
// CHECK-NEXT: v2[i]: f32 = v1 / 7
// CHECK-NEXT: v3[i]: f32 = v2 + 1e-06
// CHECK-NEXT: v4[i]: f32 = rsqrt(v3)
// CHECK-NEXT: v5[i, j]: f32 = x0 * v4
// CHECK-NEXT: return v5
func.func @rms_plain(%arg0: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %c2_i64 = arith.constant 2 : i64
  %cst = arith.constant 0.000000e+00 : f32
  %cst_0 = arith.constant 9.9999999999999995E-7 : f64
  %cst_1 = arith.constant 7.000000e+00 : f32
  %0 = tensor.empty() : tensor<5x7xf32>
  %1 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%arg0 : tensor<5x7xf32>) outs(%0 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = math.fpowi %in, %c2_i64 : f32, i64
    linalg.yield %9 : f32
  } -> tensor<5x7xf32>
  %2 = tensor.empty() : tensor<5x1xf32>
  %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<5x1xf32>) -> tensor<5x1xf32>
  %4 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<5x7xf32>) outs(%3 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = arith.addf %in, %out : f32
    linalg.yield %9 : f32
  } -> tensor<5x1xf32>
  %5 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%4 : tensor<5x1xf32>) outs(%2 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = arith.divf %in, %cst_1 : f32
    linalg.yield %9 : f32
  } -> tensor<5x1xf32>
  %6 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%5 : tensor<5x1xf32>) outs(%2 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = arith.truncf %cst_0 : f64 to f32
    %10 = arith.addf %in, %9 : f32
    linalg.yield %10 : f32
  } -> tensor<5x1xf32>
  %7 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<5x1xf32>) outs(%2 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %9 = math.rsqrt %in : f32
    linalg.yield %9 : f32
  } -> tensor<5x1xf32>
  %8 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%arg0, %7 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%0 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %9 = arith.mulf %in, %in_2 : f32
    linalg.yield %9 : f32
  } -> tensor<5x7xf32>
  return %8 : tensor<5x7xf32>
}

// A chain that has no name: two uses of one row of exponentials.
//
// CHECK-LABEL: entropy: chain
// CHECK-NEXT: i = 5, j = 7
// CHECK-NEXT: x0[i, j]: f32
// CHECK-NEXT: v0[i]: f32 = max[j] (x0)
// CHECK-NEXT: v1[i, j]: f32 = x0 - v0
// CHECK-NEXT: v2[i, j]: f32 = exp(v1)
// CHECK-NEXT: v3[i]: f32 = add[j] (v2)
// CHECK-NEXT: v4[i, j]: f32 = v2 / v3
// CHECK-NEXT: v5[i]: f32 = log(v3)
// CHECK-NEXT: v6[i, j]: f32 = v1 - v5
// CHECK-NEXT: v7[i, j]: f32 = v4 * v6
// CHECK-NEXT: v8[i]: f32 = add[j] (v7)
// CHECK-NEXT: v9[i]: f32 = -v8
// CHECK-NEXT: return v9
func.func @entropy(%arg0: tensor<5x7xf32>) -> tensor<5xf32> {
  %c0_i64 = arith.constant 0 : i64
  %cst = arith.constant 0xFF800000 : f32
  %cst_0 = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<5xi64>
  %1 = linalg.fill ins(%c0_i64 : i64) outs(%0 : tensor<5xi64>) -> tensor<5xi64>
  %2 = tensor.empty() : tensor<5xf32>
  %3 = linalg.fill ins(%cst : f32) outs(%2 : tensor<5xf32>) -> tensor<5xf32>
  %4:2 = linalg.generic {indexing_maps = [#ij_ij, #ij_i, #ij_i], iterator_types = ["parallel", "reduction"]} ins(%arg0 : tensor<5x7xf32>) outs(%3, %1 : tensor<5xf32>, tensor<5xi64>) {
  ^bb0(%in: f32, %out: f32, %out_1: i64):
    %18 = linalg.index 1 : index
    %19 = arith.index_cast %18 : index to i64
    %20 = arith.maximumf %in, %out : f32
    %21 = arith.cmpf ogt, %in, %out : f32
    %22 = arith.select %21, %19, %out_1 : i64
    linalg.yield %20, %22 : f32, i64
  } -> (tensor<5xf32>, tensor<5xi64>)
  %expanded = tensor.expand_shape %4#0 [[0, 1]] output_shape [5, 1] : tensor<5xf32> into tensor<5x1xf32>
  %5 = tensor.empty() : tensor<5x7xf32>
  %6 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%arg0, %expanded : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %18 = arith.subf %in, %in_1 : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %7 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%6 : tensor<5x7xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = math.exp %in : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %8 = tensor.empty() : tensor<5x1xf32>
  %9 = linalg.fill ins(%cst_0 : f32) outs(%8 : tensor<5x1xf32>) -> tensor<5x1xf32>
  %10 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0], iterator_types = ["parallel", "reduction"]} ins(%7 : tensor<5x7xf32>) outs(%9 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = arith.addf %in, %out : f32
    linalg.yield %18 : f32
  } -> tensor<5x1xf32>
  %11 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%7, %10 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %18 = arith.divf %in, %in_1 : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %12 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%10 : tensor<5x1xf32>) outs(%8 : tensor<5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = math.log %in : f32
    linalg.yield %18 : f32
  } -> tensor<5x1xf32>
  %13 = linalg.generic {indexing_maps = [#ij_ij, #ij_i0, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%6, %12 : tensor<5x7xf32>, tensor<5x1xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %18 = arith.subf %in, %in_1 : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %14 = linalg.generic {indexing_maps = [#ij_ij, #ij_ij, #ij_ij], iterator_types = ["parallel", "parallel"]} ins(%11, %13 : tensor<5x7xf32>, tensor<5x7xf32>) outs(%5 : tensor<5x7xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %18 = arith.mulf %in, %in_1 : f32
    linalg.yield %18 : f32
  } -> tensor<5x7xf32>
  %15 = linalg.fill ins(%cst_0 : f32) outs(%2 : tensor<5xf32>) -> tensor<5xf32>
  %16 = linalg.generic {indexing_maps = [#ij_ij, #ij_i], iterator_types = ["parallel", "reduction"]} ins(%14 : tensor<5x7xf32>) outs(%15 : tensor<5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = arith.addf %in, %out : f32
    linalg.yield %18 : f32
  } -> tensor<5xf32>
  %17 = linalg.generic {indexing_maps = [#i_i, #i_i], iterator_types = ["parallel"]} ins(%16 : tensor<5xf32>) outs(%2 : tensor<5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %18 = arith.negf %in : f32
    linalg.yield %18 : f32
  } -> tensor<5xf32>
  return %17 : tensor<5xf32>
}

// The variance is taken in f64, as torch-mlir writes it; both leading dimensions are rows.
//
// CHECK-LABEL: layernorm: chain
// CHECK-NEXT: i = 10, k = 7
// CHECK-NEXT: x0[i, k]: f32
// CHECK-NEXT: x1[k]: f32
// CHECK-NEXT: x2[k]: f32
// CHECK-NEXT: v0[i, k]: f64 = x0
// CHECK-NEXT: v1[i]: f64 = add[k] (v0)
// CHECK-NEXT: v2[i]: f64 = v1 / 7
// CHECK-NEXT: v3[i, k]: f64 = v0 - v2
// CHECK-NEXT: v4[i, k]: f64 = v3 * v3
// CHECK-NEXT: v5[i]: f64 = add[k] (v4)
// CHECK-NEXT: v6[i]: f64 = v5 / 7
// CHECK-NEXT: v7[i]: f32 = v6
// CHECK-NEXT: v8[i]: f32 = add[k] (x0)
// CHECK-NEXT: v9[i]: f32 = v8 / 7
// CHECK-NEXT: v10[i]: f32 = v7 + 1e-05
// CHECK-NEXT: v11[i]: f32 = rsqrt(v10)
// CHECK-NEXT: v12[i, k]: f32 = x0 - v9
// CHECK-NEXT: v13[i, k]: f32 = v12 * v11
// CHECK-NEXT: v14[i, k]: f32 = v13 * x1
// CHECK-NEXT: v15[i, k]: f32 = v14 + x2
// CHECK-NEXT: return v15
func.func @layernorm(%arg0: tensor<2x5x7xf32>) -> tensor<2x5x7xf32> {
  %cst = arith.constant 0.000000e+00 : f64
  %cst_0 = arith.constant 0.000000e+00 : f32
  %cst_1 = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]> : tensor<7xf32>
  %cst_2 = arith.constant dense<[7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]> : tensor<7xf32>
  %cst_3 = arith.constant 1.000000e-05 : f64
  %cst_4 = arith.constant 7.000000e+00 : f64
  %cst_5 = arith.constant 7.000000e+00 : f32
  %0 = tensor.empty() : tensor<2x5x7xf64>
  %1 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg0 : tensor<2x5x7xf32>) outs(%0 : tensor<2x5x7xf64>) {
  ^bb0(%in: f32, %out: f64):
    %22 = arith.extf %in : f32 to f64
    linalg.yield %22 : f64
  } -> tensor<2x5x7xf64>
  %2 = tensor.empty() : tensor<2x5x1xf64>
  %3 = linalg.fill ins(%cst : f64) outs(%2 : tensor<2x5x1xf64>) -> tensor<2x5x1xf64>
  %4 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ij0], iterator_types = ["parallel", "parallel", "reduction"]} ins(%1 : tensor<2x5x7xf64>) outs(%3 : tensor<2x5x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %22 = arith.addf %in, %out : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x1xf64>
  %5 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%4 : tensor<2x5x1xf64>) outs(%2 : tensor<2x5x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %22 = arith.divf %in, %cst_4 : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x1xf64>
  %6 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ij0, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%1, %5 : tensor<2x5x7xf64>, tensor<2x5x1xf64>) outs(%0 : tensor<2x5x7xf64>) {
  ^bb0(%in: f64, %in_6: f64, %out: f64):
    %22 = arith.subf %in, %in_6 : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x7xf64>
  %7 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ijk, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%6, %6 : tensor<2x5x7xf64>, tensor<2x5x7xf64>) outs(%0 : tensor<2x5x7xf64>) {
  ^bb0(%in: f64, %in_6: f64, %out: f64):
    %22 = arith.mulf %in, %in_6 : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x7xf64>
  %8 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ij0], iterator_types = ["parallel", "parallel", "reduction"]} ins(%7 : tensor<2x5x7xf64>) outs(%3 : tensor<2x5x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %22 = arith.addf %in, %out : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x1xf64>
  %9 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%8 : tensor<2x5x1xf64>) outs(%2 : tensor<2x5x1xf64>) {
  ^bb0(%in: f64, %out: f64):
    %22 = arith.divf %in, %cst_4 : f64
    linalg.yield %22 : f64
  } -> tensor<2x5x1xf64>
  %10 = tensor.empty() : tensor<2x5x1xf32>
  %11 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%9 : tensor<2x5x1xf64>) outs(%10 : tensor<2x5x1xf32>) {
  ^bb0(%in: f64, %out: f32):
    %22 = arith.truncf %in : f64 to f32
    linalg.yield %22 : f32
  } -> tensor<2x5x1xf32>
  %12 = linalg.fill ins(%cst_0 : f32) outs(%10 : tensor<2x5x1xf32>) -> tensor<2x5x1xf32>
  %13 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ij0], iterator_types = ["parallel", "parallel", "reduction"]} ins(%arg0 : tensor<2x5x7xf32>) outs(%12 : tensor<2x5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %22 = arith.addf %in, %out : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x1xf32>
  %14 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%13 : tensor<2x5x1xf32>) outs(%10 : tensor<2x5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %22 = arith.divf %in, %cst_5 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x1xf32>
  %15 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%11 : tensor<2x5x1xf32>) outs(%10 : tensor<2x5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %22 = arith.truncf %cst_3 : f64 to f32
    %23 = arith.addf %in, %22 : f32
    linalg.yield %23 : f32
  } -> tensor<2x5x1xf32>
  %16 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%15 : tensor<2x5x1xf32>) outs(%10 : tensor<2x5x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %22 = math.rsqrt %in : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x1xf32>
  %17 = tensor.empty() : tensor<2x5x7xf32>
  %18 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ij0, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%arg0, %14 : tensor<2x5x7xf32>, tensor<2x5x1xf32>) outs(%17 : tensor<2x5x7xf32>) {
  ^bb0(%in: f32, %in_6: f32, %out: f32):
    %22 = arith.subf %in, %in_6 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x7xf32>
  %19 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ij0, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%18, %16 : tensor<2x5x7xf32>, tensor<2x5x1xf32>) outs(%17 : tensor<2x5x7xf32>) {
  ^bb0(%in: f32, %in_6: f32, %out: f32):
    %22 = arith.mulf %in, %in_6 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x7xf32>
  %20 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_k, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%19, %cst_2 : tensor<2x5x7xf32>, tensor<7xf32>) outs(%17 : tensor<2x5x7xf32>) {
  ^bb0(%in: f32, %in_6: f32, %out: f32):
    %22 = arith.mulf %in, %in_6 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x7xf32>
  %21 = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_k, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%20, %cst_1 : tensor<2x5x7xf32>, tensor<7xf32>) outs(%17 : tensor<2x5x7xf32>) {
  ^bb0(%in: f32, %in_6: f32, %out: f32):
    %22 = arith.addf %in, %in_6 : f32
    linalg.yield %22 : f32
  } -> tensor<2x5x7xf32>
  return %21 : tensor<2x5x7xf32>
}

// A maximum over two axes, taken over one after the other, is one reduction: the axes are one, and so are the sweeps.
//
// CHECK-LABEL: deviations: chain
// CHECK-NEXT: i = 5, j = 77
// CHECK-NEXT: x0[i, j]: f32
// CHECK-NEXT: v1[i]: f32 = max[j] (x0)
// CHECK-NEXT: v2[i, j]: f32 = x0 - v1
// CHECK-NEXT: return v2
func.func @deviations(%x: tensor<5x7x11xf32>) -> tensor<5x7x11xf32> {
  %least = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %start = linalg.fill ins(%least : f32) outs(%e : tensor<5x7xf32>) -> tensor<5x7xf32>
  %inner = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_ij], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : tensor<5x7x11xf32>) outs(%start : tensor<5x7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.maximumf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<5x7xf32>
  %f = tensor.empty() : tensor<5xf32>
  %first = linalg.fill ins(%least : f32) outs(%f : tensor<5xf32>) -> tensor<5xf32>
  %outer = linalg.generic {indexing_maps = [#ij_ij, #ij_i], iterator_types = ["parallel", "reduction"]} ins(%inner : tensor<5x7xf32>) outs(%first : tensor<5xf32>) {
  ^bb0(%a: f32, %b: f32):
    %m = arith.maximumf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<5xf32>
  %g = tensor.empty() : tensor<5x7x11xf32>
  %d = linalg.generic {indexing_maps = [#ijk_ijk, #ijk_i, #ijk_ijk], iterator_types = ["parallel", "parallel", "parallel"]} ins(%x, %outer : tensor<5x7x11xf32>, tensor<5xf32>) outs(%g : tensor<5x7x11xf32>) {
  ^bb0(%a: f32, %m: f32, %b: f32):
    %s = arith.subf %a, %m : f32
    linalg.yield %s : f32
  } -> tensor<5x7x11xf32>
  return %d : tensor<5x7x11xf32>
}
