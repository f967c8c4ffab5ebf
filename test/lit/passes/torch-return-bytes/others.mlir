// RUN: covan-opt %s -p 'torch-return-bytes' | FileCheck %s

// Constants of other types, and bytes that are computed, are left to torch-mlir.
// CHECK-LABEL: func.func @main(%{{.*}}: !torch.vtensor<[2],ui8>) -> (!torch.vtensor<[2],si8>, !torch.vtensor<[2],ui8>)
// CHECK-NOT: torch_c
func.func @main(%x: !torch.vtensor<[2],ui8>) -> (!torch.vtensor<[2],si8>, !torch.vtensor<[2],ui8>) {
  %signed = torch.vtensor.literal(dense<7> : tensor<2xsi8>) : !torch.vtensor<[2],si8>
  return %signed, %x : !torch.vtensor<[2],si8>, !torch.vtensor<[2],ui8>
}
