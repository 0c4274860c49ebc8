#include "lockstep/datasets/tokens/parquet_tokens.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/data_checksum.h"
#include "lockstep/datasets/parquet/internal/dataset_files.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"
#include "lockstep/datasets/parquet/internal/row_group_cache.h"
#include "lockstep/datasets/tensors/collated_dataset.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {

static_assert(CollatedDataset<ParquetTokens>);

namespace {

/// Memory for the first tokens of row groups.
constexpr size_t kMostHeadBytes = size_t{64} << 20;

void check_options(const ParquetTokensOptions& options) {
  const auto refuse = [](const std::string& expected, int64_t actual) {
    throw std::invalid_argument("[ParquetTokens] expected " + expected + ", but got " +
                                std::to_string(actual));
  };
  if (options.sequence_length < 1) refuse("a sequence length of 1 or more", options.sequence_length);
  if (options.stride.value_or(1) < 1) refuse("a stride of 1 or more", *options.stride);
  if (options.vocab_size < 1) refuse("the size of the vocabulary", 0);
  if (options.memory_limit < 1) refuse("a memory limit of 1 byte or more", options.memory_limit);
  if (options.lanes < 0) refuse("0 lanes or more", options.lanes);
}

ParquetFile open_token_column(const std::string& path, const ParquetTokensOptions& options) {
  ParquetFile file({.path = path,
                    .columns = {options.column},
                    .null_lists_are_empty = true,
                    .store_attempts = options.store_attempts});
  const ParquetColumn& column = file.columns().front();
  const bool is_list = column.shape == ParquetShape::kList || column.shape == ParquetShape::kFixedList;
  if (!is_list || !column.unit.empty() || !c10::isIntegralType(column.type, /*includeBool=*/false))
    throw DataError(file.path(), "column '" + column.name + "'", "lists of ids of tokens",
                    column.shape == ParquetShape::kBytes
                        ? "strings or binaries"
                        : std::string(is_list ? "lists of " : "") + c10::toString(column.type));
  return file;
}

std::string name_of_group(const ParquetFile& file, int row_group) {
  return file.path() + ": row group " + std::to_string(row_group);
}

}  // namespace

/// The part that copies share.
struct ParquetTokensState {
  struct Group {
    size_t file = 0;
    int row_group = 0;
  };

  size_t sequence_length = 0;
  size_t stride = 0;
  uint32_t vocab_size = 0;
  at::ScalarType type = at::kInt;
  size_t num_sequences = 0;
  size_t lanes = 1;
  std::vector<std::string> paths;
  std::vector<ParquetFile> files;
  std::vector<Group> groups;
  std::vector<uint64_t> firsts{0};  // the position of each group's first token, and the number of all
  std::unique_ptr<RowGroupCache> cache;
  // A sequence that begins in a row group may end in the next one. The first tokens of those that were
  // decoded are kept, so that they need not be decoded again for it.
  mutable std::mutex mutex;
  mutable std::map<size_t, at::Tensor> heads;  // guarded by mutex
  mutable size_t head_bytes = 0;               // guarded by mutex

  uint64_t num_tokens() const { return firsts.back(); }

  /// Returns the number of sequences whose first token is before a position.
  size_t sequences_before(uint64_t position) const {
    return std::min(num_sequences, static_cast<size_t>((position + stride - 1) / stride));
  }

  std::string name_of(size_t group) const {
    return name_of_group(files[groups[group].file], groups[group].row_group);
  }

  /// Throws DataError naming the row and the first token that is not below the vocabulary's size, if there is
  /// one.
  void check_tokens(size_t group, const ParquetValues& lists, const at::Tensor& tokens) const {
    const auto* token = tokens.const_data_ptr<int64_t>();
    const auto is_wrong = [&](int64_t id) { return id < 0 || id >= int64_t{vocab_size}; };
    const int64_t place = std::find_if(token, token + tokens.numel(), is_wrong) - token;
    if (place == tokens.numel()) return;
    int64_t row = 0;
    if (lists.offsets.defined()) {
      const auto* offsets = lists.offsets.const_data_ptr<int64_t>();
      row = std::upper_bound(offsets, offsets + lists.offsets.numel(), place) - offsets - 1;
    } else {
      row = place / lists.values.size(1);
    }
    throw DataError(name_of(group) + ": row " + std::to_string(row), "token",
                    "one below the size of the vocabulary, " + std::to_string(vocab_size),
                    std::to_string(token[place]));
  }

  std::vector<ParquetValues> decode(size_t group) const {
    const Group& of = groups[group];
    const auto lists = files[of.file].read_row_group(of.row_group);
    const at::Tensor tokens = lists.front().values.reshape({-1}).to(at::kLong);
    const auto expected = static_cast<int64_t>(firsts[group + 1] - firsts[group]);
    if (tokens.numel() != expected)
      throw DataError(name_of(group), "tokens", std::to_string(expected) + " as its metadata says",
                      std::to_string(tokens.numel()));
    check_tokens(group, lists.front(), tokens);
    return {{.values = tokens.to(type), .offsets = {}}};
  }

  /// Returns the first tokens of a row group if they are kept and have at least `count`, else undefined.
  at::Tensor head_of(size_t group, size_t count) const {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = heads.find(group);
    return found == heads.end() || static_cast<size_t>(found->second.numel()) < count ? at::Tensor()
                                                                                      : found->second;
  }

  void keep_head(size_t group, const at::Tensor& tokens) const {
    const std::lock_guard<std::mutex> lock(mutex);
    if (heads.count(group) || head_bytes >= kMostHeadBytes) return;
    const auto count = std::min(tokens.numel(), static_cast<int64_t>(sequence_length));
    const at::Tensor head = heads[group] = tokens.narrow(0, 0, count).clone();
    head_bytes += head.nbytes();
  }
};

ParquetTokens::ParquetTokens(const ParquetTokensOptions& options)
    : state_(std::make_shared<ParquetTokensState>()) {
  check_options(options);
  ParquetTokensState& state = *state_;
  state.sequence_length = static_cast<size_t>(options.sequence_length);
  state.stride = static_cast<size_t>(options.stride.value_or(options.sequence_length));
  state.vocab_size = options.vocab_size;
  constexpr int64_t kMostInt = std::numeric_limits<int32_t>::max();
  state.type = int64_t{options.vocab_size} - 1 <= kMostInt ? at::kInt : at::kLong;
  const std::vector<std::string> paths = find_parquet_files(options.paths, options.store_attempts);
  if (paths.empty()) throw std::invalid_argument("[ParquetTokens] paths: expected a file, but got none");
  std::vector<RowGroupCache::Group> sizes;
  int64_t largest = 1;
  state.files =
      open_parquet_files(paths, [&](const std::string& path) { return open_token_column(path, options); });
  for (size_t i = 0; i < state.files.size(); ++i) {
    const ParquetFile& file = state.files[i];
    state.paths.push_back(file.path());
    for (int group = 0; group < file.num_row_groups(); ++group) {
      const auto noted = file.num_values(group, 0);
      const int64_t count = noted ? *noted : file.read_row_group(group).front().values.numel();
      const int64_t most = options.memory_limit / static_cast<int64_t>(c10::elementSize(state.type));
      if (count > most)
        throw DataError(name_of_group(file, group) + ": expected at most " + std::to_string(most) +
                        " tokens, as many as fit into the memory limit of " +
                        std::to_string(options.memory_limit) + " bytes, but got " + std::to_string(count) +
                        "; raise the limit, or write smaller row groups");
      state.groups.push_back({.file = i, .row_group = group});
      state.firsts.push_back(state.firsts.back() + static_cast<uint64_t>(count));
      largest = std::max(largest, count * static_cast<int64_t>(c10::elementSize(state.type)));
    }
  }
  if (num_tokens() <= state.sequence_length)
    throw DataError(state.paths.front() + (paths.size() > 1 ? " and the other files" : "") +
                    ": expected at least " + std::to_string(state.sequence_length + 1) +
                    " tokens for a sequence of " + std::to_string(state.sequence_length) +
                    " and the token after it, but got " + std::to_string(num_tokens()));
  state.num_sequences = (num_tokens() - state.sequence_length - 1) / state.stride + 1;
  state.lanes = options.lanes > 0 ? static_cast<size_t>(options.lanes)
                                  : max_open_row_groups(options.memory_limit, largest);
  // A row group is used up when all sequences that begin in it were read.
  const std::vector<size_t> sequences = chunk_sizes();
  for (size_t group = 0; group < state.groups.size(); ++group)
    sizes.push_back({.bytes = static_cast<int64_t>((state.firsts[group + 1] - state.firsts[group]) *
                                                   c10::elementSize(state.type)),
                     .rows = static_cast<int64_t>(sequences[group])});
  state.cache = std::make_unique<RowGroupCache>(
      std::move(sizes), options.memory_limit,
      [&state](size_t group, const RowGroupCache::Rows&) { return state.decode(group); });
}

std::optional<size_t> ParquetTokens::size() const {
  return state_->num_sequences;
}

torch::data::Example<> ParquetTokens::get_batch(c10::ArrayRef<size_t> indices) const {
  const ParquetTokensState& state = *state_;
  check_indices(indices, state.num_sequences, "ParquetTokens");
  struct Piece {
    size_t begin = 0;  // in the row group
    size_t count = 0;
    int64_t* out = nullptr;
  };
  struct Wanted {
    std::vector<Piece> pieces;
    int64_t sequences = 0;  // that begin in the row group
  };
  const size_t width = state.sequence_length + 1;
  const at::Tensor tokens =
      at::empty({static_cast<int64_t>(indices.size()), static_cast<int64_t>(width)}, at::kLong);
  auto* out = tokens.mutable_data_ptr<int64_t>();
  std::map<size_t, Wanted> groups;
  for (const size_t index : indices) {
    uint64_t position = uint64_t{index} * state.stride;
    const auto next = std::upper_bound(state.firsts.begin(), state.firsts.end(), position);
    auto group = static_cast<size_t>(next - state.firsts.begin()) - 1;
    ++groups[group].sequences;
    for (size_t left = width; left > 0; ++group) {
      const size_t count = std::min<uint64_t>(left, state.firsts[group + 1] - position);
      if (count > 0) groups[group].pieces.push_back({position - state.firsts[group], count, out});
      position += count;
      left -= count;
      out += count;
    }
  }
  for (const auto& [group, wanted] : groups) {
    const auto copy_from = [&pieces = wanted.pieces](const at::Tensor& source) {
      AT_DISPATCH_INDEX_TYPES(source.scalar_type(), "ParquetTokens", [&] {
        const auto* from = source.const_data_ptr<index_t>();
        for (const Piece& piece : pieces) std::copy_n(from + piece.begin, piece.count, piece.out);
      });
    };
    size_t end = 0;
    for (const Piece& piece : wanted.pieces) end = std::max(end, piece.begin + piece.count);
    if (wanted.sequences == 0) {
      if (const at::Tensor head = state.head_of(group, end); head.defined()) {
        copy_from(head);
        continue;
      }
    }
    const auto decoded = state.cache->get(group, wanted.sequences);
    copy_from(decoded->columns.front().values);
    state.keep_head(group, decoded->columns.front().values);
  }
  const auto length = static_cast<int64_t>(state.sequence_length);
  return {tokens.narrow(1, 0, length).contiguous(), tokens.narrow(1, 1, length).contiguous()};
}

std::string ParquetTokens::identity() const {
  DataChecksum checksum;
  for (const ParquetFile& file : state_->files) checksum.add(file.identity());
  checksum.add(state_->files.front().columns().front().name);
  return std::to_string(num_tokens()) + " tokens in " + std::to_string(state_->num_sequences) +
         " sequences of " + std::to_string(state_->sequence_length) +
         " in Parquet files (checksum of their metadata " + checksum.text() + ")";
}

uint64_t ParquetTokens::num_tokens() const {
  return state_->num_tokens();
}

const std::vector<std::string>& ParquetTokens::paths() const {
  return state_->paths;
}

int64_t ParquetTokens::peak_memory() const {
  return state_->cache->peak_bytes();
}

int64_t ParquetTokens::num_decoded_row_groups() const {
  return state_->cache->num_decoded();
}

std::vector<size_t> ParquetTokens::chunk_sizes() const {
  std::vector<size_t> sizes;
  for (size_t group = 0; group < state_->groups.size(); ++group)
    sizes.push_back(state_->sequences_before(state_->firsts[group + 1]) -
                    state_->sequences_before(state_->firsts[group]));
  return sizes;
}

size_t ParquetTokens::max_open_chunks() const {
  return state_->lanes;
}

void ParquetTokens::prefetch_chunks(const std::vector<size_t>& chunks,
                                    const ParquetDataset::OrderWithin&) const {
  // Sequences are no rows, so their order is none of the row group's rows.
  state_->cache->prefetch(chunks);
}

}  // namespace lockstep
