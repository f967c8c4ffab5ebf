// RUN: not covan-opt %s --split-input-file -o %t 2>&1 | FileCheck %s
// RUN: not cat %t

// Lines are counted from the start of the file. If one part fails, nothing is written.

func.func private @fine()
// -----
// CHECK:      split-input-file-locations.mlir:11:1: error: 'func.return' op
// CHECK-NEXT: {{^}}func.return
// CHECK-NEXT: {{^}}^
func.return
