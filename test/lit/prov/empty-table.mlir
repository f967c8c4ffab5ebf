// RUN: covan-opt %s | covan-opt | FileCheck %s

// A module may carry a table without rows.

// CHECK:      "prov.table"() ({
// CHECK-NEXT: }) : () -> ()
"prov.table"() ({
}) : () -> ()
