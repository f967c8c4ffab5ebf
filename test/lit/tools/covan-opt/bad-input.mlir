// RUN: not covan-opt %t-missing 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not covan-opt %S 2>&1 | FileCheck %s --check-prefix=FOLDER
// RUN: not covan-opt --no-such-flag 2>&1 | FileCheck %s --check-prefix=FLAG
// RUN: not covan-opt %s -o %t-no-such-folder/out 2>&1 | FileCheck %s --check-prefix=OUTPUT
// RUN: not covan-opt %s --emit-bytecode --split-input-file 2>&1 | FileCheck %s --check-prefix=SPLIT

// What is wrong is said in one line.

// MISSING: {{^}}covan-opt: error: cannot read '{{.*}}-missing': No such file or directory
// FOLDER: {{^}}covan-opt: error: cannot read '{{.*}}': Is a directory
// FLAG: {{^}}covan-opt: error: unrecognized arguments: --no-such-flag
// OUTPUT: {{^}}covan-opt: error: cannot write '{{.*}}': No such file or directory
// SPLIT: {{^}}covan-opt: error: --emit-bytecode writes one module
module {
}
