#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

/// Takes the bytes of a file, in order and part by part. Its functions throw std::system_error naming the
/// file where the system refuses.
class PartSink {
 public:
  virtual ~PartSink() = default;
  virtual void write(const void* bytes, size_t count) = 0;
  /// What was written since the last part was the part `name`.
  virtual void end_part(const std::string& name) = 0;
};

}  // namespace lockstep
