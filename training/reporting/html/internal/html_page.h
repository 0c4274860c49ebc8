#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A page that is one file: it needs no other file, no network and no scripts, and follows its reader's
/// choice of light or dark. Made of the plots' figures, tables (html_text.h) and texts.
class HtmlPage {
 public:
  /// `title` is the heading as well.
  explicit HtmlPage(std::string title) : title_(std::move(title)) {}

  /// A line below the heading; the first one is larger.
  HtmlPage& line(const std::string& text);
  /// Key figures side by side: what each is, and its value.
  HtmlPage& key_figures(const std::vector<std::pair<std::string, std::string>>& figures);
  HtmlPage& heading(const std::string& text);
  HtmlPage& paragraph(const std::string& text);
  /// Figures side by side where there is room.
  HtmlPage& figures(const std::vector<std::string>& figures);
  /// A picture of pixels, each of them shown as a square, with two lines below it.
  struct Picture {
    std::vector<uint8_t> png;
    std::string description;  ///< for those who cannot see it
    std::string first_line;
    std::string second_line = "";
  };
  HtmlPage& pictures(const std::vector<Picture>& pictures);
  /// Elements of HTML as they are, such as html_table()'s.
  HtmlPage& elements(const std::string& html);
  /// The same behind a line that opens it.
  HtmlPage& folded(const std::string& summary, const std::string& html);

  std::string html() const;

 private:
  std::string title_;
  std::string header_;
  std::string body_;
};

/// The page's style sheet.
const char* html_style();

}  // namespace lockstep
