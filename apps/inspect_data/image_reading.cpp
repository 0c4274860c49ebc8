#include <algorithm>
#include <filesystem>
#include <utility>

#include "lockstep/apps/convert_data/folder_readers.h"
#include "lockstep/apps/inspect_data/inspected_data.h"
#include "lockstep/datasets/images/internal/class_folder.h"

namespace lockstep::apps {
namespace {

constexpr size_t kImagesAtOnce = 64;

std::vector<ColumnSummary> image_column_summaries() {
  return {{.name = "image", .type = "file", .kind = ColumnKind::kImages},
          {.name = "label", .type = "name of a folder", .kind = ColumnKind::kTexts}};
}

class ImageReading final : public ConversionStream {
 public:
  ImageReading(ClassFolder folder, std::vector<size_t> files, DataSummary& summary,
               ConversionProgress& progress)
      : folder_(std::move(folder)), files_(std::move(files)), summary_(summary), progress_(progress) {}

  Convert next() override {
    const size_t begin = next_;
    next_ = std::min(begin + kImagesAtOnce, files_.size());
    if (begin == next_) return {};
    return [this, begin, end = next_] { return read(begin, end); };
  }
  void finish() override {}

 private:
  Write read(size_t begin, size_t end) {
    auto columns = std::make_shared<std::vector<ColumnSummary>>(image_column_summaries());
    readers_.with_reader([&](ClassFolderReader& reader) {
      for (size_t i = begin; i < end; ++i) {
        const ClassFolderFile& file = folder_.files[files_[i]];
        const std::vector<uint8_t> bytes = reader.read(file);
        const std::string_view image(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        const std::string_view label = folder_.classes[static_cast<size_t>(file.label)];
        (*columns)[0].add_bytes({&image, 1});
        (*columns)[1].add_bytes({&label, 1});
        (*columns)[0].stored_bytes += static_cast<int64_t>(bytes.size());
      }
    });
    return [this, columns, count = static_cast<int64_t>(end - begin)] {
      for (size_t i = 0; i < columns->size(); ++i) {
        (*columns)[i].num_rows = count;
        summary_.columns[i].merge((*columns)[i]);
        summary_.columns[i].stored_bytes += (*columns)[i].stored_bytes;
      }
      summary_.rows_read += count;
      progress_.rows += count;
      progress_.done += count;
    };
  }

  ClassFolder folder_;
  FolderReaders readers_{folder_};
  std::vector<size_t> files_;  // to read
  DataSummary& summary_;
  ConversionProgress& progress_;
  size_t next_ = 0;
};

}  // namespace

DataReading open_image_reading(const InspectedData& data, ConversionProgress& progress) {
  DataReading reading{.summary = std::make_unique<DataSummary>(), .unit = "images"};
  DataSummary& summary = *reading.summary;
  ClassFolder folder = list_class_folder(data.paths.front());
  summary.place = data.place;
  summary.kind = "images";
  summary.columns = image_column_summaries();
  summary.num_rows = static_cast<int64_t>(folder.files.size());
  summary.files = {data.paths.front()};
  for (const ClassFolderFile& file : folder.files) {
    std::error_code error;
    const auto bytes =
        folder.archive.empty() ? std::filesystem::file_size(file.entry.name, error) : file.entry.size;
    if (!error) summary.stored_bytes += static_cast<int64_t>(bytes);
  }
  if (const std::string ignored = folder.ignored.describe(); !ignored.empty())
    summary.problems.push_back("files that are no images of a class: " + ignored);
  const std::vector<size_t> files =
      sampled_parts(std::vector<int64_t>(folder.files.size(), 1), data.num_rows);
  reading.total = static_cast<int64_t>(files.size());
  if (files.size() < folder.files.size()) summary.sampling = "images that are evenly spread";
  reading.streams.push_back(std::make_unique<ImageReading>(std::move(folder), files, summary, progress));
  return reading;
}

}  // namespace lockstep::apps
