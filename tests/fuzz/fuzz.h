#pragma once

// Code that the fuzz programs share. Each feeds the bytes that libFuzzer makes to one parser. A parser's
// documented exception is an answer; any other one, and an expectation that does not hold, ends the program,
// which libFuzzer reports together with the bytes.

#include <sanitizer/allocator_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::fuzz {

inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "expected %s\n", what);
  std::abort();
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// One line that a terminal shows as it is.
inline void expect_plain_line(std::string_view message) {
  for (const char character : message)
    expect(character >= 0x20 && character < 0x7F, "a message of printable characters");
}

/// What `parse` returns; none where it throws an `Error`, whose message is handed to `look`.
template <typename Error, typename Parse, typename Look>
auto accepted(const Parse& parse, const Look& look) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const Error& error) {
    look(std::string_view(error.what()));
  }
  return std::nullopt;
}

template <typename Error, typename Parse>
auto accepted(const Parse& parse) {
  return accepted<Error>(parse, [](std::string_view message) { expect(!message.empty(), "a message"); });
}

/// A file in memory, for parsers that take a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
    expect(descriptor_ >= 0, "a file in memory");
  }
  explicit MemoryFile(std::span<const uint8_t> bytes) : MemoryFile() {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t count = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
      expect(count > 0, "room in memory");
      done += static_cast<size_t>(count);
    }
  }
  explicit MemoryFile(std::string_view text)
      : MemoryFile(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size())) {}
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

/// The most memory that was allocated at once while it lived, beyond what was allocated before. One at a
/// time.
class PeakMemory {
 public:
  PeakMemory() {
    static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    expect(installed != 0, "room for the hooks that count memory");
    live_ = 0;
    peak_ = 0;
    is_counting_ = true;
  }
  ~PeakMemory() { is_counting_ = false; }
  PeakMemory(const PeakMemory&) = delete;
  PeakMemory& operator=(const PeakMemory&) = delete;

  /// `factor` times the input's bytes, and `base` bytes for what does not depend on it.
  void expect_at_most(size_t factor, size_t input_bytes, size_t base) const {
    const auto limit = static_cast<int64_t>(factor * input_bytes + base);
    if (peak_ > limit) std::fprintf(stderr, "%lld bytes\n", static_cast<long long>(peak_));
    expect(peak_ <= limit, "a parser that takes no more memory than it promises");
  }

 private:
  static void on_malloc(const volatile void*, size_t size) {
    if (!is_counting_) return;
    live_ += static_cast<int64_t>(size);
    if (live_ > peak_) peak_ = live_.load();
  }
  static void on_free(const volatile void* memory) {
    if (is_counting_ && memory != nullptr)
      live_ -= static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
  }

  // libFuzzer has threads of its own.
  inline static std::atomic<bool> is_counting_ = false;
  inline static std::atomic<int64_t> live_ = 0;
  inline static std::atomic<int64_t> peak_ = 0;
};

}  // namespace lockstep::fuzz
