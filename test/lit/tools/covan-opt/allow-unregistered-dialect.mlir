// RUN: covan-opt %s --allow-unregistered-dialect | FileCheck %s
// RUN: not covan-opt %s 2>&1 | FileCheck %s --check-prefix=STRICT

// CHECK: "unknown.op"() : () -> ()
// STRICT: error: {{.*}}unregistered dialect
"unknown.op"() : () -> ()
