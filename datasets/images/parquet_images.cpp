#include "lockstep/datasets/images/parquet_images.h"

#include <ATen/ops/empty.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/data_checksum.h"
#include "lockstep/datasets/files/internal/parallel_blocks.h"
#include "lockstep/datasets/images/internal/decode_file.h"
#include "lockstep/datasets/images/internal/label_column.h"
#include "lockstep/datasets/tensors/collated_dataset.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep {

static_assert(CollatedDataset<ParquetImages>);

namespace {

constexpr size_t kRowsAtOnce = 1024;  // that are looked at for bad ones

ParquetDatasetOptions row_options(const ParquetImagesOptions& options, std::vector<std::string>* skipped) {
  ParquetDatasetOptions rows{.paths = options.paths,
                             .columns = {options.image_column, options.label_column},
                             .null_lists_are_empty = true,
                             .store_attempts = options.store_attempts,
                             .memory_limit = options.memory_limit,
                             .lanes = options.lanes,
                             .skips_unreadable = options.skip_bad};
  if (skipped) rows.on_message = [skipped](const std::string& message) { skipped->push_back(message); };
  return rows;
}

std::vector<std::string> classes_of(const ParquetImagesOptions& options) {
  if (!options.classes.empty()) return options.classes;
  ParquetDatasetOptions rows = row_options(options, nullptr);
  rows.columns = {options.label_column};
  return find_classes(rows);
}

void check_image_rows(const ParquetDataset& rows) {
  const ParquetColumn& images = rows.columns().front();
  if (images.shape != ParquetShape::kBytes)
    throw DataError(rows.paths().front(), "column '" + images.name + "'",
                    "images, as binaries or structs of bytes and path", "another type");
  if (*rows.size() == 0)
    throw DataError(rows.paths().front(), "rows", "at least one that can be read", "none");
}

}  // namespace

/// The part that copies share.
struct ParquetImagesState {
  explicit ParquetImagesState(const ParquetImagesOptions& options)
      : transform(make_transform(options)),
        rows(row_options(options, &skipped)),
        labels(rows.paths().front(), rows.columns().back(), classes_of(options)),
        apply_exif_orientation(options.apply_exif_orientation),
        has_fixed_size(options.image_size == 0),
        skip_bad(options.skip_bad),
        threads(std::make_unique<ParallelBlocks>(options.num_threads)) {
    check_image_rows(rows);
    layout = {.channels = options.channels, .height = options.image_size, .width = options.image_size};
    if (has_fixed_size) take_size_of_first();
    if (skip_bad) find_bad();
  }

  size_t size() const { return *rows.size() - bad.size(); }

  /// Returns the row of an image.
  size_t row_of(size_t index) const {
    const auto before = std::upper_bound(good_before_bad.begin(), good_before_bad.end(), index);
    return index + static_cast<size_t>(before - good_before_bad.begin());
  }

  DecodedImage decode(const ParquetValues& images, size_t place, const std::string& name) const {
    const auto* offsets = images.offsets.const_data_ptr<int64_t>();
    const std::span bytes(images.values.const_data_ptr<uint8_t>() + offsets[place],
                          static_cast<size_t>(offsets[place + 1] - offsets[place]));
    try {
      return decode_file(bytes, name, apply_exif_orientation);
    } catch (const DataError& error) {
      throw ImageError(error.what());
    }
  }

  /// Decodes the image at `place` of a batch to `out`, layout.bytes() long. `row` is its row in the files.
  void decode_to(const ParquetValues& images, size_t place, size_t row, uint8_t* out) const {
    const std::string name = row_name(rows, row);
    const DecodedImage image = decode(images, place, name);
    if (has_fixed_size) check_size_of(image, layout, name);
    convert_image(image, layout, out);
  }

  DataError bad_label(const ParquetValues& values, size_t place, size_t row) const {
    return {row_name(rows, row), "column '" + rows.columns().back().name + "'", labels.expected(),
            labels.text_of(values, place)};
  }

  void take_size_of_first() {
    for (size_t row = 0; row < *rows.size(); ++row) {
      const ParquetBatch batch = rows.get_batch({row});
      try {
        const DecodedImage image = decode(batch.columns.front(), 0, row_name(rows, row));
        layout.height = image.height;
        layout.width = image.width;
        return;
      } catch (const DataError&) {
        if (!skip_bad) throw;
      }
    }
    refuse_all();
  }

  [[noreturn]] void refuse_all() const {
    throw DataError(rows.paths().front(), "images", "at least one that can be decoded",
                    std::to_string(*rows.size()) + " bad ones");
  }

  void find_bad() {
    for (size_t begin = 0; begin < *rows.size(); begin += kRowsAtOnce) {
      std::vector<size_t> indices(std::min(kRowsAtOnce, *rows.size() - begin));
      std::iota(indices.begin(), indices.end(), begin);
      const ParquetBatch batch = rows.get_batch(indices);
      const std::vector<int64_t> classes = labels.classes_of(batch.columns.back());
      std::vector<std::string> errors(indices.size());
      threads->for_each(indices.size(), /*block_size=*/1, [&](size_t place, size_t) {
        try {
          if (classes[place] < 0) throw bad_label(batch.columns.back(), place, indices[place]);
          std::vector<uint8_t> image(layout.bytes());
          decode_to(batch.columns.front(), place, indices[place], image.data());
        } catch (const DataError& error) {
          errors[place] = error.what();
        }
      });
      for (size_t place = 0; place < errors.size(); ++place) {
        if (errors[place].empty()) continue;
        skipped.push_back(errors[place]);
        good_before_bad.push_back(indices[place] - bad.size());
        bad.push_back(indices[place]);
      }
    }
    if (size() == 0) refuse_all();
  }

  std::vector<std::string> skipped;
  ImageTransform transform;
  ParquetDataset rows;
  LabelColumn labels;
  bool apply_exif_orientation;
  bool has_fixed_size;  // of all images, that of the first one
  bool skip_bad;
  ImageLayout layout;
  std::vector<size_t> bad;              // rows that are left out
  std::vector<size_t> good_before_bad;  // for each of them, the number of images before it
  std::unique_ptr<ParallelBlocks> threads;
};

ParquetImages::ParquetImages(const ParquetImagesOptions& options) {
  if (options.num_threads < 0)
    throw std::invalid_argument("[ParquetImages] num_threads: expected 0 or more, but got " +
                                std::to_string(options.num_threads));
  state_ = std::make_shared<const ParquetImagesState>(options);
}

std::optional<size_t> ParquetImages::size() const {
  return state_->size();
}

torch::data::Example<> ParquetImages::get_batch(c10::ArrayRef<size_t> indices) const {
  const ParquetImagesState& state = *state_;
  check_indices(indices, state.size(), "ParquetImages");
  std::vector<size_t> rows;
  rows.reserve(indices.size());
  for (const size_t index : indices) rows.push_back(state.row_of(index));
  const ParquetBatch batch = state.rows.get_batch(rows);
  const std::vector<int64_t> classes = state.labels.classes_of(batch.columns.back());
  for (size_t place = 0; place < classes.size(); ++place)
    if (classes[place] < 0) throw state.bad_label(batch.columns.back(), place, rows[place]);
  const ImageLayout& layout = state.layout;
  // A decoded image has the channels of a pixel side by side, which is what channels_last means.
  at::Tensor data =
      torch::empty({static_cast<int64_t>(rows.size()), layout.channels, layout.height, layout.width},
                   torch::TensorOptions(torch::kByte).memory_format(at::MemoryFormat::ChannelsLast));
  auto* out = data.mutable_data_ptr<uint8_t>();
  state.threads->for_each(rows.size(), /*block_size=*/1, [&](size_t place, size_t) {
    state.decode_to(batch.columns.front(), place, rows[place], out + place * layout.bytes());
  });
  at::Tensor target = torch::empty({static_cast<int64_t>(rows.size())}, torch::kLong);
  std::copy(classes.begin(), classes.end(), target.mutable_data_ptr<int64_t>());
  return {std::move(data), std::move(target)};
}

torch::data::Example<> ParquetImages::device_transform(torch::data::Example<> batch) const {
  return {state_->transform(batch.data), std::move(batch.target)};
}

std::string ParquetImages::identity() const {
  DataChecksum checksum;
  for (const std::string& name : classes()) checksum.add(name);
  checksum.add(state_->bad.data(), state_->bad.size() * sizeof(size_t));
  return "images in " + std::to_string(classes().size()) + " classes (checksum " + checksum.text() + "), " +
         state_->rows.identity();
}

const std::vector<std::string>& ParquetImages::classes() const {
  return state_->labels.classes();
}

bool ParquetImages::has_names() const {
  return state_->rows.columns().back().shape == ParquetShape::kBytes;
}

const std::vector<std::string>& ParquetImages::skipped() const {
  return state_->skipped;
}

const ParquetDataset& ParquetImages::rows() const {
  return state_->rows;
}

std::vector<size_t> ParquetImages::chunk_sizes() const {
  std::vector<size_t> sizes = state_->rows.chunk_sizes();
  size_t begin = 0;
  auto bad = state_->bad.begin();
  for (size_t& size : sizes) {
    begin += size;
    for (; bad != state_->bad.end() && *bad < begin; ++bad) --size;
  }
  return sizes;
}

size_t ParquetImages::max_open_chunks() const {
  return state_->rows.max_open_chunks();
}

void ParquetImages::prefetch_chunks(const std::vector<size_t>& chunks,
                                    const ParquetDataset::OrderWithin& order_within) const {
  // The order is one of whole row groups only if no row was left out.
  state_->rows.prefetch_chunks(chunks, state_->bad.empty() ? order_within : ParquetDataset::OrderWithin{});
}

}  // namespace lockstep
