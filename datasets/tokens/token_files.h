#pragma once

#include <torch/data/example.h>

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/datasets/tokens/text_encoding.h"
#include "lockstep/datasets/tokens/token_format.h"

namespace lockstep {

class TokenStream;

struct TokenFilesOptions {
  /// Files, folders and patterns such as "train_*.bin", as in ClickFilesOptions. Files that end with .bin
  /// hold tokens. Files that end with .jsonl, .ndjson or .json hold JSON lines, and all others text; these
  /// may be compressed, with .gz or .zst after their names. Files that end with .parquet or .pq hold a column
  /// of text; they may also be named by URIs, as in ParquetDatasetOptions. ParquetTokens reads lists of ids.
  std::vector<std::string> paths;
  /// Tokens that a model gets, and as many that it predicts.
  int64_t sequence_length = 1024;
  /// Tokens are below it. Required.
  uint32_t vocab_size = 0;
  /// Tokens from the beginning of one sequence to that of the next. None: sequence_length, so that each token
  /// is predicted once.
  std::optional<int64_t> stride{};
  /// Of the .bin files.
  TokenFormat format = TokenFormat::kAuto;
  /// Required if there are text files.
  TextEncoding encoding{};
  /// The column of text in Parquet files.
  std::string parquet_column = "text";
  /// Folder in which to keep the tokens of text files for the next start, as .bin files; created if it is
  /// missing. It may hold none of the files in `paths`. Empty: text files are turned into tokens at each
  /// start, and kept in memory.
  std::string cache_folder{};
  /// The most memory for the tokens of all text files, if there is no cache folder.
  uint64_t max_bytes_in_memory = uint64_t{1} << 30;
  /// How many bytes of each .bin file to check for tokens beyond the vocabulary at once. All are checked when
  /// they are read.
  uint64_t check_bytes = uint64_t{1} << 30;
  /// Receives one line if text is turned into tokens for the cache, for instance "a.txt: turning its text
  /// into tokens, once".
  std::function<void(const std::string&)> on_message{};
};

/// Sequences of tokens for a language model, out of .bin files, text files and JSON lines. The tokens of all
/// files are taken one after another, in the order of the paths, and cut into sequences of equal length; a
/// sequence may span documents and files. Tokens at the end that do not fill a sequence are left out.
///
/// The .bin files are mapped into memory and must keep their content while they are used. Text passes through
/// TextEncoding::encode, and each document is followed by the end-of-text token. A text file is one document,
/// and so is each line of JSON lines and each row of a Parquet file. The interface is that of
/// CollatedDataset. Copies share the tokens.
///
/// Example:
///
///     TokenFiles tokens({.paths = {"data/train_*.bin"}, .sequence_length = 1024, .vocab_size = 50'257});
///     auto batches = strategy.distribute_dataset(
///         tokens, {.global_batch_size = 32, .shuffle_seed = 1, .shuffle_window = 100'000});
class TokenFiles {
 public:
  /// Blocks until all text is turned into tokens. Throws std::invalid_argument if an option is out of range
  /// or missing. Throws DataError naming the file if
  /// - there is no such file, or it is not a regular file;
  /// - a .bin file is empty, ends within a token, or has another header than TokenFormat says;
  /// - a token is not below the vocabulary's size: the message names its position;
  /// - a text is not valid UTF-8, but TextEncoding::requires_utf8 is true: the message names the byte;
  /// - a text file has no text, or a JSON line is broken or lacks the field: the message names the line;
  /// - all files together have too few tokens for one sequence, or the text too many for memory.
  explicit TokenFiles(const TokenFilesOptions& options);

  std::optional<size_t> size() const { return num_sequences_; }
  /// Returns `data` and `target`, int64 [n, sequence_length]. The target of a token is the one after it.
  /// Throws std::invalid_argument if an index is not below size(), and DataError if a token is not below the
  /// vocabulary's size, or a file was cut.
  torch::data::Example<> get_batch(c10::ArrayRef<size_t> indices) const;
  /// Returns the batch unchanged.
  torch::data::Example<> device_transform(torch::data::Example<> batch) const { return batch; }
  /// Returns the numbers of tokens and sequences, and a checksum of up to 256 sequences, which it reads.
  /// Throws DataError as get_batch().
  std::string identity() const;

  /// Returns the number of tokens in all files.
  uint64_t num_tokens() const;
  /// Returns the files in the order of their tokens.
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::vector<std::string> paths_;
  size_t sequence_length_;
  size_t stride_;
  size_t num_sequences_ = 0;
  std::shared_ptr<const TokenStream> tokens_;
};

}  // namespace lockstep
