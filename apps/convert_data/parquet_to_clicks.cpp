#include <utility>

#include "lockstep/apps/convert_data/click_conversion.h"
#include "lockstep/apps/convert_data/click_text.h"
#include "lockstep/datasets/files/internal/cache_file.h"

namespace lockstep::apps {
namespace {

class ParquetToClicks final : public ConversionStream {
 public:
  ParquetToClicks(std::vector<std::string> files, std::string out, ConversionProgress& progress)
      : files_(std::move(files)), out_(std::move(out)), progress_(progress) {}

  Convert next() override {
    for (; next_file_ < files_.size(); ++next_file_, file_.reset(), row_group_ = 0) {
      if (file_ == nullptr)
        file_ = std::make_shared<const ParquetFile>(open_click_parquet(files_[next_file_]));
      if (row_group_ == file_->num_row_groups()) continue;
      const int64_t bytes = bytes_of_file(files_[next_file_]) / file_->num_row_groups();
      return [this, file = file_, group = row_group_++, bytes] { return convert(*file, group, bytes); };
    }
    return {};
  }

  void finish() override {
    begin();
    text_->commit();
  }

 private:
  Write convert(const ParquetFile& file, int group, int64_t bytes) {
    return [this, text = click_text(file, group), rows = file.num_rows(group), bytes] {
      begin();
      text_->append(text);
      progress_.rows += rows;
      progress_.done += bytes;
    };
  }

  void begin() {
    if (text_ == nullptr) text_ = std::make_unique<NewFile>(out_, /*is_sole=*/false);
  }

  std::vector<std::string> files_;
  std::string out_;
  ConversionProgress& progress_;
  size_t next_file_ = 0;
  std::shared_ptr<const ParquetFile> file_;
  int row_group_ = 0;
  std::unique_ptr<NewFile> text_;  // made with the first block
};

}  // namespace

std::unique_ptr<ConversionStream> parquet_to_clicks(std::vector<std::string> files, const std::string& out,
                                                    ConversionProgress& progress) {
  return std::make_unique<ParquetToClicks>(std::move(files), out, progress);
}

}  // namespace lockstep::apps
