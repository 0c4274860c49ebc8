#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::apps {

/// One output that is made of blocks of rows, in their order.
class ConversionStream {
 public:
  virtual ~ConversionStream() = default;

  /// Writes a converted block. One thread at a time calls those of a stream, in the order of their blocks.
  using Write = std::function<void()>;
  /// Converts a block. Several threads call those of a stream at the same time.
  using Convert = std::function<Write()>;

  /// Reads the next block; an empty function at the end. One thread at a time calls it.
  virtual Convert next() = 0;
  /// Ends the output after the last block.
  virtual void finish() = 0;
};

/// The progress of a conversion. Streams count what they have done.
struct ConversionProgress {
  std::atomic<int64_t> done{0};  ///< bytes of the input, or images
  std::atomic<int64_t> rows{0};
};

struct StreamRun {
  int64_t threads = 1;
  /// Called in the caller's thread several times a second.
  std::function<void()> on_wait = [] {};
  /// Returns whether to stop. Called in the caller's thread several times a second.
  std::function<bool()> is_cancelled = [] { return false; };
};

/// Runs streams to their ends with several threads, which spread over them: blocks of one stream are
/// converted in parallel if there are fewer streams than threads. At most as many blocks as threads are in
/// memory, and as many streams have begun and not ended. Blocks until all are done, and returns true, or
/// false if it was cancelled. Throws what a stream throws: of several errors of one stream, that of the first
/// block.
bool run_streams(const std::vector<std::unique_ptr<ConversionStream>>& streams, const StreamRun& run);

}  // namespace lockstep::apps
