#pragma once

#include <arrow/io/type_fwd.h>

#include <memory>

#include "lockstep/datasets/stores/read_times.h"

namespace lockstep {

/// Returns a file that reads from another one, and adds to `times` the bytes and, at its end, the time for
/// which reads were under way. That time is taken off ReadPart::kDecode, within which files are read.
std::shared_ptr<arrow::io::RandomAccessFile> timed_file(std::shared_ptr<arrow::io::RandomAccessFile> file,
                                                        std::shared_ptr<ReadTimes> times);

}  // namespace lockstep
