#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// A self-contained HTML page: needs no other file, no network and no scripts, and follows the reader's
/// choice of light or dark. Consists of the plots' figures, tables (html_text.h) and texts.
class HtmlPage {
 public:
  /// `title` is also the heading.
  explicit HtmlPage(std::string title) : title_(std::move(title)) {}

  /// Adds a line below the heading; the first one is larger.
  HtmlPage& line(const std::string& text);
  /// Adds key figures side by side: pairs of name and value.
  HtmlPage& key_figures(const std::vector<std::pair<std::string, std::string>>& figures);
  HtmlPage& heading(const std::string& text);
  HtmlPage& paragraph(const std::string& text);
  /// Adds figures, side by side if there is room.
  HtmlPage& figures(const std::vector<std::string>& figures);
  /// A picture with square pixels and two lines of text below it.
  struct Picture {
    std::vector<uint8_t> png;
    std::string description;  ///< alternative text for readers who cannot see it
    std::string first_line;
    std::string second_line = "";
  };
  HtmlPage& pictures(const std::vector<Picture>& pictures);
  /// Adds HTML elements unchanged, such as from html_table().
  HtmlPage& elements(const std::string& html);
  /// Adds HTML elements that are hidden until the reader opens the `summary` line.
  HtmlPage& folded(const std::string& summary, const std::string& html);

  std::string html() const;

 private:
  std::string title_;
  std::string header_;
  std::string body_;
};

/// Returns the page's style sheet.
const char* html_style();

}  // namespace lockstep
