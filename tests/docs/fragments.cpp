// The fragments of C++ in docs/ compile.
#include <fragments.h>  // written out of docs/, see write_fragments.py
