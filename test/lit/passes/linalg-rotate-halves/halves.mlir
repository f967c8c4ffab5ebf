// RUN: covan-opt %s -p 'func.func(linalg-rotate-halves)' | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>

// CHECK-LABEL: func.func @rotated
// CHECK-SAME:    %[[X:.*]]: tensor<5x8xf32>
// CHECK:         %[[HALVES:.*]] = tensor.expand_shape %[[X]] {{\[\[}}0], [1, 2]] output_shape [5, 2, 4]
// CHECK:         %[[NEW:.*]] = linalg.generic
// CHECK-SAME:      outs(%{{.*}} : tensor<5x2x4xf32>)
// CHECK:           %[[OTHER:.*]] = arith.subi %{{.*}}, %{{.*}} : index
// CHECK:           %[[TAKEN:.*]] = tensor.extract %[[HALVES]][%{{.*}}, %[[OTHER]], %{{.*}}]
// CHECK:           %[[SECOND:.*]] = arith.cmpi eq, %[[OTHER]]
// CHECK:           %[[NEGATED:.*]] = arith.negf %[[TAKEN]]
// CHECK:           arith.select %[[SECOND]], %[[NEGATED]], %[[TAKEN]]
// CHECK:         %[[JOINED:.*]] = tensor.collapse_shape %[[NEW]] {{\[\[}}0], [1, 2]]
// CHECK-NOT:     tensor.extract_slice
// CHECK:         return %[[JOINED]]
func.func @rotated(%x: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %first = tensor.extract_slice %x[0, 0] [5, 4] [1, 1] : tensor<5x8xf32> to tensor<5x4xf32>
  %second = tensor.extract_slice %x[0, 4] [5, 4] [1, 1] : tensor<5x8xf32> to tensor<5x4xf32>
  %e = tensor.empty() : tensor<5x4xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%second : tensor<5x4xf32>) outs(%e : tensor<5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.negf %in : f32
    linalg.yield %r : f32
  } -> tensor<5x4xf32>
  %y = tensor.concat dim(1) %n, %first : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x8xf32>
  return %y : tensor<5x8xf32>
}

// What others read of it stays, and so does what asks for a size that is known at run time: it is given that.

// CHECK-LABEL: func.func @also_read
// CHECK-SAME:    %{{.*}}: tensor<?x8xf32>, %[[N:.*]]: index
// CHECK:         %[[FIRST:.*]] = tensor.extract_slice
// CHECK-NOT:     tensor.extract_slice
// CHECK:         tensor.empty(%[[N]]) : tensor<?x2x4xf32>
// CHECK:         return %{{.*}}, %[[FIRST]], %[[N]]
func.func @also_read(%x: tensor<?x8xf32>, %n: index) -> (tensor<?x8xf32>, tensor<?x4xf32>, index) {
  %c0 = arith.constant 0 : index
  %first = tensor.extract_slice %x[0, 0] [%n, 4] [1, 1] : tensor<?x8xf32> to tensor<?x4xf32>
  %second = tensor.extract_slice %x[0, 4] [%n, 4] [1, 1] : tensor<?x8xf32> to tensor<?x4xf32>
  %e = tensor.empty(%n) : tensor<?x4xf32>
  %m = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%second : tensor<?x4xf32>) outs(%e : tensor<?x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.negf %in : f32
    linalg.yield %r : f32
  } -> tensor<?x4xf32>
  %d = tensor.dim %m, %c0 : tensor<?x4xf32>
  %y = tensor.concat dim(1) %m, %first : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x8xf32>
  return %y, %first, %d : tensor<?x8xf32>, tensor<?x4xf32>, index
}

// Halves that stay where they are, and pieces that are no halves.

// CHECK-LABEL: func.func @in_place
// CHECK:         tensor.concat
func.func @in_place(%x: tensor<5x8xf32>) -> tensor<5x8xf32> {
  %first = tensor.extract_slice %x[0, 0] [5, 4] [1, 1] : tensor<5x8xf32> to tensor<5x4xf32>
  %second = tensor.extract_slice %x[0, 4] [5, 4] [1, 1] : tensor<5x8xf32> to tensor<5x4xf32>
  %e = tensor.empty() : tensor<5x4xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%first : tensor<5x4xf32>) outs(%e : tensor<5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.negf %in : f32
    linalg.yield %r : f32
  } -> tensor<5x4xf32>
  %y = tensor.concat dim(1) %n, %second : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x8xf32>
  return %y : tensor<5x8xf32>
}

// CHECK-LABEL: func.func @no_halves
// CHECK:         tensor.concat
func.func @no_halves(%x: tensor<5x9xf32>) -> tensor<5x8xf32> {
  %first = tensor.extract_slice %x[0, 0] [5, 4] [1, 1] : tensor<5x9xf32> to tensor<5x4xf32>
  %second = tensor.extract_slice %x[0, 5] [5, 4] [1, 1] : tensor<5x9xf32> to tensor<5x4xf32>
  %e = tensor.empty() : tensor<5x4xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%second : tensor<5x4xf32>) outs(%e : tensor<5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %r = arith.negf %in : f32
    linalg.yield %r : f32
  } -> tensor<5x4xf32>
  %y = tensor.concat dim(1) %n, %first : (tensor<5x4xf32>, tensor<5x4xf32>) -> tensor<5x8xf32>
  return %y : tensor<5x8xf32>
}
