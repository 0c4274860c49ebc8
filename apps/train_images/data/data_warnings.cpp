#include "lockstep/apps/train_images/data/data_warnings.h"

#include <c10/util/StringUtil.h>

#include <utility>
#include <variant>

namespace lockstep::apps {

std::vector<std::string> data_warnings(const DataLocation& location, const ImageData& data) {
  std::vector<std::string> warnings;
  const std::pair<const char*, const ImageDataset*> parts[] = {{"train", &data.train}, {"test", &data.test}};
  for (const auto& [part, dataset] : parts) {
    const auto* folder = std::get_if<ImageFolder>(dataset);
    if (folder == nullptr || folder->ignored_files().names.empty()) continue;
    warnings.push_back(c10::str(location.path, "/", part, ": ignored ", folder->ignored_files().describe(),
                                "; only .png, .jpg, .jpeg and .webp files directly in the folder of a class "
                                "are read"));
  }
  return warnings;
}

}  // namespace lockstep::apps
