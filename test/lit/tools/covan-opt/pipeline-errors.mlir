// RUN: not covan-opt %s -p prov-strp 2>&1 | FileCheck %s --check-prefix=OURS
// RUN: not covan-opt %s -p canonicalise 2>&1 | FileCheck %s --check-prefix=THEIRS
// RUN: not covan-opt %s -p prov-lower-locations{dropp-table=true} 2>&1 | FileCheck %s --check-prefix=OPTION
// RUN: not covan-opt %s -p prov-lower-locations{drop-table=2} 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not covan-opt %s -p 'func.func(prov-strip)' 2>&1 | FileCheck %s --check-prefix=NESTED
// RUN: not covan-opt %s -p torch-decompose-complex-ops 2>&1 | FileCheck %s --check-prefix=ANCHOR
// RUN: not covan-opt %s --pass-pipeline=cse 2>&1 | FileCheck %s --check-prefix=WRAP
// RUN: not covan-opt %s --pass-pipeline='builtin.module(cse' 2>&1 | FileCheck %s --check-prefix=PAREN
// RUN: not covan-opt %s -p cse --pass-pipeline='builtin.module(cse)' 2>&1 | FileCheck %s --check-prefix=BOTH

// A pipeline that cannot run is refused before the input is read, with the place in its text.

// OURS:      covan-opt: error: no pass is called 'prov-strp', did you mean 'prov-strip'?
// OURS-NEXT: {{^}}  builtin.module(prov-strp)
// OURS-NEXT: {{^}}                 ^

// THEIRS: error: no pass is called 'canonicalise', did you mean 'canonicalize'?

// OPTION: error: pass 'prov-lower-locations' has no option 'dropp-table', did you mean 'drop-table'?

// VALUE: error: option 'drop-table' of pass 'prov-lower-locations': '2' is not a bool: true or false

// NESTED: error: pass 'prov-strip' runs on builtin.module and cannot be nested under func.func

// ANCHOR: error: pass 'torch-decompose-complex-ops': Can't add pass 'DecomposeComplexOps' restricted to 'func.func'

// WRAP: error: expected a pipeline wrapped in the op it runs on, such as builtin.module(cse)

// PAREN: error: unbalanced '(' in the pipeline

// BOTH: error: -p and --pass-pipeline cannot be used together
module {
}
