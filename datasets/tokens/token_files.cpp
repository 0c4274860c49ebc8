#include "lockstep/datasets/tokens/token_files.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/data_checksum.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"
#include "lockstep/datasets/stores/internal/data_uri.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"
#include "lockstep/datasets/tokens/internal/parquet_documents.h"
#include "lockstep/datasets/tokens/internal/token_stream.h"
#include "lockstep/datasets/tokens/internal/tokenized_text.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_option(const std::string& expected, const std::string& actual) {
  throw std::invalid_argument("[TokenFiles] expected " + expected + ", but got " + actual);
}

void check_token_options(const TokenFilesOptions& options) {
  if (options.paths.empty()) refuse_option("files", "none");
  if (options.sequence_length < 1)
    refuse_option("a sequence length of 1 or more", std::to_string(options.sequence_length));
  if (options.stride.value_or(1) < 1) refuse_option("a stride of 1 or more", std::to_string(*options.stride));
  if (options.vocab_size < 1) refuse_option("the size of the vocabulary", "0");
}

/// Returns the path, or the URI without credentials and query.
std::string shown_name(const std::string& path) {
  return is_uri(path) ? parse_uri(path).name() : path;
}

void check_text_options(const TokenFilesOptions& options, const std::string& path) {
  if (!options.encoding.encode)
    throw std::invalid_argument("[TokenFiles] expected an encoding for the text in " + shown_name(path) +
                                "; files of tokens end with .bin");
  if (options.encoding.end_of_text >= options.vocab_size)
    refuse_option(
        "an end-of-text token below the size of the vocabulary, " + std::to_string(options.vocab_size),
        std::to_string(options.encoding.end_of_text));
  if (!options.cache_folder.empty() && options.encoding.identity.empty())
    throw std::invalid_argument(
        "[TokenFiles] expected an identity of the encoding, by which its tokens in the cache folder are "
        "known");
}

bool is_token_file(const std::string& path) {
  return path.ends_with(".bin");
}

/// Refuses a cache folder that holds the files themselves: a folder or pattern that names them would name the
/// cache's files, too, at the next start.
void check_cache_folder(const std::vector<std::string>& paths, const std::string& cache_folder) {
  namespace fs = std::filesystem;
  if (cache_folder.empty() || std::all_of(paths.begin(), paths.end(), is_token_file)) return;
  for (const auto& path : paths) {
    const fs::path folder = fs::path(path).parent_path();
    std::error_code ignored;
    if (fs::equivalent(folder.empty() ? "." : folder, cache_folder, ignored))
      throw std::invalid_argument(
          "[TokenFiles] expected a cache folder without the files that `paths` names, but " + cache_folder +
          " holds " + path);
  }
}

std::unique_ptr<const TokenPart> open_token_file(const std::string& path, const TokenFilesOptions& options) {
  auto part = std::make_unique<const TokenPart>(path, options.format);
  const uint64_t checked = std::min(part->size(), options.check_bytes / static_cast<uint64_t>(part->width()));
  part->check_tokens(0, checked, options.vocab_size);
  return part;
}

std::vector<std::unique_ptr<const TokenPart>> open_parts(const std::vector<std::string>& paths,
                                                         const TokenFilesOptions& options) {
  std::vector<std::unique_ptr<const TokenPart>> parts;
  uint64_t left = options.max_bytes_in_memory;
  check_cache_folder(paths, options.cache_folder);
  for (const auto& path : paths) {
    if (is_uri(path) && !is_parquet_name(path))
      throw DataError(shown_name(path) + ": expected a Parquet file, as other files must be on this machine");
    if (path.ends_with(".bin.gz") || path.ends_with(".bin.zst"))
      throw DataError(path + ": expected a file of tokens that is not compressed");
    if (is_token_file(path)) {
      parts.push_back(open_token_file(path, options));
      continue;
    }
    check_text_options(options, path);
    parts.push_back(tokenize_text({.path = path,
                                   .encoding = options.encoding,
                                   .vocab_size = options.vocab_size,
                                   .parquet_column = options.parquet_column,
                                   .cache_folder = options.cache_folder,
                                   .max_bytes_in_memory = left,
                                   .on_message = options.on_message}));
    if (options.cache_folder.empty())
      left -= parts.back()->size() * static_cast<uint64_t>(parts.back()->width());
  }
  return parts;
}

}  // namespace

TokenFiles::TokenFiles(const TokenFilesOptions& options) {
  check_token_options(options);
  const std::vector<std::string> paths = find_parquet_files(options.paths);
  for (const auto& path : paths) paths_.push_back(shown_name(path));
  sequence_length_ = static_cast<size_t>(options.sequence_length);
  stride_ = static_cast<size_t>(options.stride.value_or(options.sequence_length));
  tokens_ = std::make_shared<const TokenStream>(open_parts(paths, options), options.vocab_size);
  if (num_tokens() <= sequence_length_)
    throw DataError(paths_[0] + (paths_.size() > 1 ? " and the other files" : "") + ": expected at least " +
                    std::to_string(sequence_length_ + 1) + " tokens for a sequence of " +
                    std::to_string(sequence_length_) + " and the token after it, but got " +
                    std::to_string(num_tokens()));
  num_sequences_ = (num_tokens() - sequence_length_ - 1) / stride_ + 1;
}

uint64_t TokenFiles::num_tokens() const {
  return tokens_->size();
}

torch::data::Example<> TokenFiles::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, num_sequences_, "TokenFiles");
  tokens_->check_sizes();
  const std::vector<int64_t> shape{static_cast<int64_t>(indices.size()),
                                   static_cast<int64_t>(sequence_length_)};
  at::Tensor data = at::empty(shape, at::kLong);
  at::Tensor target = at::empty(shape, at::kLong);
  auto* input = data.mutable_data_ptr<int64_t>();
  auto* output = target.mutable_data_ptr<int64_t>();
  for (const size_t index : indices) {
    const uint64_t first = uint64_t{index} * stride_;
    tokens_->copy(first, {input, 1});
    tokens_->copy(first + 1, {output, sequence_length_});
    std::memcpy(input + 1, output, (sequence_length_ - 1) * sizeof(int64_t));
    input += sequence_length_;
    output += sequence_length_;
  }
  return {std::move(data), std::move(target)};
}

std::string TokenFiles::identity() const {
  constexpr size_t kMaxSequences = 256;
  tokens_->check_sizes();
  const size_t count = std::min(num_sequences_, kMaxSequences);
  DataChecksum checksum;
  std::vector<int64_t> tokens(sequence_length_ + 1);
  for (size_t i = 0; i < count; ++i) {
    tokens_->copy(uint64_t{i * num_sequences_ / count} * stride_, tokens);
    checksum.add(tokens.data(), tokens.size() * sizeof(int64_t));
  }
  return std::to_string(num_tokens()) + " tokens in " + std::to_string(num_sequences_) + " sequences of " +
         std::to_string(sequence_length_) + " (checksum " + checksum.text() + ")";
}

}  // namespace lockstep
