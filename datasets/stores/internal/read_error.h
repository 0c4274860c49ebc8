#pragma once

#include "lockstep/datasets/files/data_error.h"

namespace lockstep {

/// Thrown if the bytes of a file cannot be had: its store does not answer or refuses to, or the file is
/// missing, or another one than before. The same bytes may be there later, unlike those that are damaged, so
/// nobody may leave out rows for it.
class ReadError : public DataError {
 public:
  using DataError::DataError;
};

}  // namespace lockstep
