// RUN: covan-opt %s -p 'torch-return-bytes' | FileCheck %s
// RUN: covan-opt %s -p 'torch-return-bytes,torch-backend-to-linalg-on-tensors-backend-pipeline' | FileCheck %s --check-prefix=LINALG

// CHECK-LABEL: func.func @main(%{{.*}}: tensor<2xf32>) -> (tensor<2xi8>, tensor<2xf32>)
// CHECK: %[[BYTES:.*]] = torch_c.to_builtin_tensor %{{.*}} : !torch.vtensor<[2],ui8> -> tensor<2xi8>
// CHECK: return %[[BYTES]],
// LINALG-LABEL: func.func @main(
// LINALG: %[[BYTES:.*]] = arith.constant dense<-56> : tensor<2xi8>
// LINALG: return %[[BYTES]],
func.func @main(%x: !torch.vtensor<[2],f32>) -> (!torch.vtensor<[2],ui8>, !torch.vtensor<[2],f32>) {
  %bytes = torch.vtensor.literal(dense<200> : tensor<2xui8>) : !torch.vtensor<[2],ui8>
  return %bytes, %x : !torch.vtensor<[2],ui8>, !torch.vtensor<[2],f32>
}

// What will be folded to a constant is one.
// LINALG-LABEL: func.func @folded(
// LINALG: %[[FOLDED:.*]] = arith.constant dense<7> : tensor<3xi8>
// LINALG: return %[[FOLDED]]
func.func @folded(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[3],ui8> {
  %int7 = torch.constant.int 7
  %int3 = torch.constant.int 3
  %int0 = torch.constant.int 0
  %none = torch.constant.none
  %false = torch.constant.bool false
  %size = torch.prim.ListConstruct %int3 : (!torch.int) -> !torch.list<int>
  %full = torch.aten.full %size, %int7, %int0, %none, %none, %false : !torch.list<int>, !torch.int, !torch.int, !torch.none, !torch.none, !torch.bool -> !torch.vtensor<[3],ui8>
  return %full : !torch.vtensor<[3],ui8>
}
