#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

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

 protected:
  Source source_;
  SequenceRange range_;
};

/// Some sequences of Parquet files, as a ChunkedDataset.
class ParquetSequences : public TokenDataset {
 public:
  /// Throws std::bad_variant_access unless the sequences are of Parquet files.
  explicit ParquetSequences(const TokenDataset& dataset);

  /// Chunks before and after the range have size 0.
  std::vector<size_t> chunk_sizes() const;
  size_t max_open_chunks() const { return parquet().max_open_chunks(); }
  void prefetch_chunks(const std::vector<size_t>& chunks,
                       const ParquetDataset::OrderWithin& order_within = {}) const {
    parquet().prefetch_chunks(chunks, order_within);
  }

 private:
  const ParquetTokens& parquet() const { return std::get<ParquetTokens>(source_); }
};

/// Distributes the sequences, those of Parquet files in chunks.
DistributedDataset<Example> distribute(const Strategy& strategy, const TokenDataset& dataset,
                                       const DistributeOptions& options);

}  // namespace lockstep::apps
