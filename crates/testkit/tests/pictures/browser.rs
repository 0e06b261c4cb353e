//! Chromium, driven over the DevTools protocol.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use billhook_testkit::browser::chromium;
use chromiumoxide::{
    BrowserConfig, Page,
    cdp::{
        browser_protocol::{
            emulation::MediaFeature,
            input::{DispatchKeyEventParams, DispatchKeyEventType, InsertTextParams},
            log::EventEntryAdded,
            network::EventRequestWillBeSent,
            page::CaptureScreenshotFormat,
        },
        js_protocol::runtime::{EvaluateParams, EventExceptionThrown},
    },
    page::ScreenshotParams,
};
use futures::StreamExt as _;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// The contrast that WCAG 2 demands of text at level AA.
const CONTRAST: f64 = 4.5;

/// A browser with a new, empty profile.
pub struct Browser {
    browser: chromiumoxide::Browser,
    handler: JoinHandle<()>,
    folder: TempDir,
}

/// A page that was opened from disk.
pub struct Opened {
    page: Page,
    address: String,
    /// What the page requested, and what failed in it.
    requests: Arc<Mutex<Vec<String>>>,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Browser {
    /// Starts the browser of this machine; none if it has none.
    pub async fn launch() -> Option<Self> {
        let Some(program) = chromium() else {
            println!("left out: there is no Chromium; install the package chromium, or name one in BILLHOOK_CHROMIUM");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let config = BrowserConfig::builder()
            .chrome_executable(program)
            .user_data_dir(folder.path().join("profile"))
            .no_sandbox()
            .window_size(1400, 900)
            .viewport(None)
            .launch_timeout(Duration::from_secs(120))
            .request_timeout(Duration::from_secs(120))
            .args(["disable-gpu", "disable-quic", "no-first-run", "disable-component-update", "disable-sync"])
            .build()
            .unwrap();
        let (browser, mut events) = chromiumoxide::Browser::launch(config).await.unwrap();
        let handler = tokio::spawn(async move { while events.next().await.is_some() {} });
        Some(Self { browser, handler, folder })
    }

    pub async fn close(mut self) {
        self.browser.close().await.unwrap();
        self.browser.wait().await.unwrap();
        self.handler.abort();
    }

    /// Opens a page from disk.
    pub async fn open(&self, name: &str, html: &str) -> Opened {
        let file = self.folder.path().join(format!("{name}.html"));
        std::fs::write(&file, html).unwrap();
        let page = self.browser.new_page("about:blank").await.unwrap();
        let (requests, errors) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let mut sent = page.event_listener::<EventRequestWillBeSent>().await.unwrap();
        let mut thrown = page.event_listener::<EventExceptionThrown>().await.unwrap();
        let mut logged = page.event_listener::<EventEntryAdded>().await.unwrap();
        let (to_requests, to_errors, to_log) = (Arc::clone(&requests), Arc::clone(&errors), Arc::clone(&errors));
        tokio::spawn(async move {
            while let Some(event) = sent.next().await {
                to_requests.lock().unwrap().push(event.request.url.clone());
            }
        });
        tokio::spawn(async move {
            while let Some(event) = thrown.next().await {
                to_errors.lock().unwrap().push(format!("{:?}", event.exception_details));
            }
        });
        tokio::spawn(async move {
            while let Some(event) = logged.next().await {
                to_log.lock().unwrap().push(format!("{:?}", event.entry));
            }
        });
        let address = format!("file://{}", file.display());
        page.goto(address.as_str()).await.unwrap();
        Opened { page, address, requests, errors }
    }
}

impl Opened {
    /// Runs a script in the page, and returns its result.
    pub async fn evaluate(&self, script: &str) -> Value {
        let call =
            EvaluateParams::builder().expression(script).await_promise(true).return_by_value(true).build().unwrap();
        self.page.evaluate(call).await.unwrap().value().cloned().unwrap_or_default()
    }

    /// Returns the text of an element.
    pub async fn text(&self, selector: &str) -> String {
        let script = format!("(document.querySelector({}) || {{}}).textContent || ''", Value::from(selector));
        self.evaluate(&script).await.as_str().unwrap().to_owned()
    }

    /// Presses and releases a key.
    pub async fn press(&self, key: &str) {
        let typed = if key.chars().count() == 1 { Some(key) } else { None };
        let of = |kind| DispatchKeyEventParams::builder().r#type(kind).key(key);
        let down = match (typed, key) {
            (Some(text), _) => of(DispatchKeyEventType::KeyDown).text(text),
            (None, "Enter") => of(DispatchKeyEventType::KeyDown).text("\r").windows_virtual_key_code(13),
            _ => of(DispatchKeyEventType::RawKeyDown),
        };
        self.page.execute(down.build().unwrap()).await.unwrap();
        self.page.execute(of(DispatchKeyEventType::KeyUp).build().unwrap()).await.unwrap();
    }

    /// Writes a text where the focus is.
    pub async fn write(&self, text: &str) {
        self.page.execute(InsertTextParams::new(text)).await.unwrap();
    }

    /// Returns after how many milliseconds the first content was painted.
    pub async fn first_paint(&self) -> f64 {
        let script = "new Promise((painted) => {
            const wait = () => {
                const [entry] = performance.getEntriesByName('first-contentful-paint');
                entry ? painted(entry.startTime) : requestAnimationFrame(wait);
            };
            wait();
        })";
        self.evaluate(script).await.as_f64().unwrap()
    }

    /// Sets whether a dark page is preferred.
    pub async fn prefer(&self, scheme: &str) {
        self.page.emulate_media_features(vec![MediaFeature::new("prefers-color-scheme", scheme)]).await.unwrap();
    }

    /// Asserts that nothing but the page itself was requested, and that nothing failed.
    pub async fn is_undisturbed(&self) {
        // The events of all that was done before this answer have arrived with it.
        assert_eq!(self.evaluate("typeof hurt").await, "undefined");
        let requests = self.requests.lock().unwrap().clone();
        assert!(requests.iter().all(|url| *url == self.address) && !requests.is_empty(), "{requests:?}");
        assert_eq!(*self.errors.lock().unwrap(), [""; 0]);
        let loaded = self.evaluate("performance.getEntriesByType('resource').length").await;
        assert_eq!(loaded, 0, "resources were loaded");
    }

    /// Asserts that each text that is shown has the contrast of WCAG AA to what is behind it.
    pub async fn contrast(&self, what: &str) {
        let found = self.evaluate(CONTRASTS).await;
        let found = found.as_array().unwrap();
        assert!(found.len() > 10, "{what}: only {} texts", found.len());
        let low: Vec<_> = found.iter().filter(|text| text["contrast"].as_f64().unwrap() < CONTRAST).collect();
        assert!(low.is_empty(), "{what}: {low:?}");
    }

    /// Leaves a screenshot in `target/pictures`.
    pub async fn screenshot(&self, name: &str) {
        let folder = screenshots();
        std::fs::create_dir_all(&folder).unwrap();
        let params = ScreenshotParams::builder().format(CaptureScreenshotFormat::Png).build();
        let png = self.page.screenshot(params).await.unwrap();
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }
}

fn screenshots() -> PathBuf {
    // `target/tmp` of this build.
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("pictures")
}

/// Computes the contrast of each text that is shown, as WCAG 2 defines it.
const CONTRASTS: &str = r"(() => {
    const parse = (color) => (color.match(/[\d.]+/g) || []).map(Number);
    const channel = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    const luminance = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
    const behind = (element) => {
        for (; element; element = element.parentElement) {
            const color = parse(getComputedStyle(element).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    while (texts.nextNode()) {
        const text = texts.currentNode.textContent.trim();
        const element = texts.currentNode.parentElement;
        if (!text || element.closest('script, noscript') || element.offsetParent === null) continue;
        const [one, other] = [parse(getComputedStyle(element).color), behind(element)].map(luminance).sort((a, b) => b - a);
        found.push({ text: text.slice(0, 40), of: element.className, contrast: (one + 0.05) / (other + 0.05) });
    }
    return found;
})()";
