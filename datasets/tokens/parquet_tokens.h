#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_dataset.h"

namespace lockstep {

struct ParquetTokensState;

struct ParquetTokensOptions {
  /// Files, folders, patterns and URIs, as in ParquetDatasetOptions.
  std::vector<std::string> paths;
  /// Holds lists of ids, of any integer type.
  std::string column = "input_ids";
  /// As in TokenFilesOptions, like the next two.
  int64_t sequence_length = 1024;
  uint32_t vocab_size = 0;
  std::optional<int64_t> stride{};
  /// The most bytes of tokens in memory, which have 4 bytes each; 8 if vocab_size is above 2^31.
  int64_t memory_limit = int64_t{1} << 30;
  int64_t lanes = 0;  ///< as in ParquetDatasetOptions, like the next one
  int store_attempts = 8;
};

/// Sequences of tokens for a language model, out of lists of ids in Parquet files: a CollatedDataset and a
/// ChunkedDataset. The lists of all rows are taken one after another, with nothing between them, and cut into
/// sequences as by TokenFiles, so sequences may span rows, row groups and files. Null and empty lists have no
/// tokens.
///
/// The tokens stay in the files: row groups are decoded when they are needed and kept within a memory limit,
/// and the next ones are decoded ahead in the background. A sequence belongs to the row group, its chunk,
/// that holds its first token. Copies share the files and the memory. All functions are thread-safe.
///
/// Needs a build with Apache Arrow (docs/data.md).
///
/// Example:
///
///     ParquetTokens tokens({.paths = {"tokens/*.parquet"}, .sequence_length = 1024, .vocab_size = 50'257});
///     auto batches = strategy.distribute_dataset(tokens, {.global_batch_size = 32, .shuffle_seed = 1});
class ParquetTokens {
 public:
  /// Blocks until the metadata of all files is read, and the row groups, too, whose writer has not noted how
  /// many ids they have. Throws as ParquetFile() for each file; DataError naming the file and the column if
  /// it holds no lists of integers, the row group if its tokens are larger than the memory limit, and the
  /// first file if all have too few tokens for one sequence. Throws std::invalid_argument if an option is out
  /// of range or missing.
  explicit ParquetTokens(const ParquetTokensOptions& options);

  std::optional<size_t> size() const;
  /// Returns `data` and `target`, int64 [n, sequence_length]. The target of a token is the one after it.
  /// Blocks until the row groups are decoded, in the caller's thread if they were not ahead. Throws
  /// std::invalid_argument if an index is not below size(), as ParquetFile::read_row_group(), and DataError
  /// naming the file, the row group and the row if a token is not below the vocabulary's size.
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  /// Returns the batch unchanged.
  torch::data::Example<> device_transform(torch::data::Example<> batch) const { return batch; }
  /// Returns the numbers of tokens and sequences, and a checksum of the files' metadata.
  std::string identity() const;

  /// Returns the number of tokens in all files.
  uint64_t num_tokens() const;
  /// Returns the files in the order of their tokens, URIs without credentials and query.
  const std::vector<std::string>& paths() const;
  /// Returns the most bytes of tokens that were in memory at the same time.
  int64_t peak_memory() const;
  /// Returns how often a row group was decoded, but for counting.
  int64_t num_decoded_row_groups() const;

  /// Make this a ChunkedDataset.
  std::vector<size_t> chunk_sizes() const;
  size_t max_open_chunks() const;
  void prefetch_chunks(const std::vector<size_t>& chunks,
                       const ParquetDataset::OrderWithin& order_within = {}) const;

 private:
  std::shared_ptr<ParquetTokensState> state_;
};

}  // namespace lockstep
