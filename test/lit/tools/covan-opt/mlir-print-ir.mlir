// RUN: covan-opt %s -p cse -p prov-strip --mlir-print-ir-after-all 2>&1 | FileCheck %s --check-prefix=AFTER
// RUN: covan-opt %s -p cse -p prov-strip --mlir-print-ir-before-all 2>&1 | FileCheck %s --check-prefix=BEFORE

// Covan's passes print like any other.

// AFTER: IR Dump After CSE{{.*}} cse
// AFTER: "prov.table"
// AFTER: IR Dump After ProvStrip: prov-strip
// AFTER-NOT: "prov.table"

// BEFORE: IR Dump Before CSE{{.*}} cse
// BEFORE: IR Dump Before ProvStrip: prov-strip
// BEFORE: "prov.table"
"prov.table"() ({
}) : () -> ()
