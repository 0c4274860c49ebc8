#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_writer.h"
#include "lockstep/tests/support/test_files.h"

namespace lockstep {

/// Returns texts or files, one a row.
inline ParquetValues bytes_values(const std::vector<testing::Bytes>& rows) {
  testing::Bytes all;
  std::vector<int64_t> offsets{0};
  for (const auto& row : rows) {
    all.insert(all.end(), row.begin(), row.end());
    offsets.push_back(static_cast<int64_t>(all.size()));
  }
  return {.values = torch::tensor(all, torch::kByte), .offsets = torch::tensor(offsets, torch::kLong)};
}

inline ParquetColumn bytes_column(const std::string& name) {
  return {.name = name, .shape = ParquetShape::kBytes, .length = 0, .type = at::kByte};
}

/// The rows of write_images(): files of images, and their labels as text.
struct ImageRows {
  std::vector<testing::Bytes> images;
  std::vector<std::string> labels;
};

/// Returns images whose names are `<class>/<file>`, one a row.
inline ImageRows rows_of_files(const std::vector<testing::ArchiveFile>& files) {
  ImageRows rows;
  for (const auto& file : files) {
    rows.images.push_back(file.bytes);
    rows.labels.push_back(file.name.substr(0, file.name.find('/')));
  }
  return rows;
}

/// Writes the columns image and label, of strings or, if `numbers` is set, of int32.
inline void write_images(const std::string& path, const ImageRows& rows, int64_t rows_per_group,
                         bool numbers = false) {
  ParquetColumn label = numbers ? ParquetColumn{.name = "label", .type = at::kInt} : bytes_column("label");
  ParquetValues labels;
  if (numbers) {
    std::vector<int64_t> classes;
    for (const auto& text : rows.labels) classes.push_back(std::stoll(text));
    labels = {.values = torch::tensor(classes, torch::kLong).to(torch::kInt), .offsets = {}};
  } else {
    std::vector<testing::Bytes> texts;
    for (const auto& text : rows.labels) texts.push_back(testing::to_bytes(text));
    labels = bytes_values(texts);
  }
  ParquetWriter writer(
      {.path = path, .columns = {bytes_column("image"), label}, .rows_per_group = rows_per_group});
  writer.append({bytes_values(rows.images), labels});
  writer.close();
}

}  // namespace lockstep
