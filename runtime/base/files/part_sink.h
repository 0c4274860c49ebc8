#pragma once

#include <cstddef>
#include <string>

namespace lockstep {

/// Receives the bytes of a file in order, part by part. Its functions throw std::system_error naming the file
/// if the system refuses.
///
/// Example:
///
///     class SizeSink : public PartSink {
///       void write(const void*, size_t count) override { size_ += count; }
///       void end_part(const std::string& name) override { std::cout << name << ' ' << size_ << '\n'; }
///       size_t size_ = 0;
///     };
class PartSink {
 public:
  virtual ~PartSink() = default;
  virtual void write(const void* bytes, size_t count) = 0;
  /// Ends the part `name`: all bytes written since the previous part.
  virtual void end_part(const std::string& name) = 0;
};

}  // namespace lockstep
