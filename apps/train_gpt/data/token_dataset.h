#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/apps/shared/chunked_range.h"
#include "lockstep/datasets/tokens/generated_text.h"
#include "lockstep/datasets/tokens/parquet_tokens.h"
#include "lockstep/datasets/tokens/token_files.h"
#include "lockstep/strategies/core/strategy.h"

namespace lockstep::apps {

/// Some sequences one after another.
struct SequenceRange {
  size_t begin = 0;
  size_t count = 0;
};

/// Some sequences of token files, of Parquet files or of a generated language. Copies share the tokens.
/// Thread-safe. The interface is that of CollatedDataset.
class TokenDataset {
 public:
  using Source = std::variant<GeneratedText, TokenFiles, ParquetTokens>;

  /// Throws InvalidArgument if the range is not within the source.
  TokenDataset(Source source, const SequenceRange& range);

  std::optional<size_t> size() const { return range_.count; }
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  torch::data::Example<> device_transform(torch::data::Example<> batch) const { return batch; }
  std::string identity() const;

  int64_t num_sequences() const { return static_cast<int64_t>(range_.count); }
  const Source& source() const { return source_; }
  /// Returns the place of the first sequence in the source.
  size_t first() const { return range_.begin; }

 private:
  Source source_;
  SequenceRange range_;
};

/// Some sequences of Parquet files, as a ChunkedDataset.
using ParquetSequences = ChunkedRange<TokenDataset, ParquetTokens>;

/// Distributes the sequences, those of Parquet files in chunks.
DistributedDataset<Example> distribute(const Strategy& strategy, const TokenDataset& dataset,
                                       const DistributeOptions& options);

}  // namespace lockstep::apps
