/** The default theme in the colours of the chat page. */
import theme from "vitepress/theme-without-fonts";
import "./colours.css";

export default theme;
