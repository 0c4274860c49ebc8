#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "lockstep/datasets/tokens/generated_text.h"
#include "lockstep/datasets/tokens/token_files.h"

namespace lockstep::apps {

/// Some sequences one after another.
struct SequenceRange {
  size_t begin = 0;
  size_t count = 0;
};

/// Some sequences of token files or of a generated language. Copies share the tokens. Thread-safe. The
/// interface is that of CollatedDataset.
class TokenDataset {
 public:
  using Source = std::variant<GeneratedText, TokenFiles>;

  /// Throws InvalidArgument if the range is not within the source.
  TokenDataset(Source source, const SequenceRange& range);

  std::optional<size_t> size() const { return range_.count; }
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  torch::data::Example<> device_transform(torch::data::Example<> batch) const { return batch; }
  std::string identity() const;

  int64_t num_sequences() const { return static_cast<int64_t>(range_.count); }
  const Source& source() const { return source_; }

 private:
  Source source_;
  SequenceRange range_;
};

}  // namespace lockstep::apps
