// RUN: not covan-opt %s --verify-diagnostics --split-input-file --allow-unregistered-dialect 2>&1 | FileCheck %s

// CHECK: failures.mlir:4:1: error: expected warning "never" was not produced
// expected-warning@+1 {{never}}
module {
}

// -----

// CHECK: failures.mlir:11:1: error: unexpected error: 'prov.table' op unexpected number of regions
"prov.table"() : () -> ()

// -----

// CHECK: failures.mlir:19:1: error: 'error' emitted where 'remark' is expected: 'prov.table' op
// CHECK: failures.mlir:18:1: error: expected remark "unexpected number of regions" was not produced

// expected-remark@+1 {{unexpected number of regions}}
"prov.table"() : () -> ()

// -----

// CHECK: failures.mlir:25:1: error: expected error "number of regions" was not produced, only 1 of 2 times

// expected-error@+1 2 {{number of regions}}
"prov.table"() : () -> ()

// -----

// CHECK: failures.mlir:32:1: error: malformed expectation

// expected-error @ +1 number of regions
module {
}
